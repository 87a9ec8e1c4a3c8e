"""Launching a run: once at a time, into one folder, not for ever."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from training_data import launch_of, write_config, write_egs

from hadpsgd.errors import UserError
from hadpsgd.locks import locked
from hadpsgd.models.build import load_model
from hadpsgd.run_folder import LAUNCH_LOCK
from hadpsgd.tracking.events import from_json
from hadpsgd.tracking.identity import read_or_create as identity_of
from hadpsgd.tracking.spool import LAST_WORD, Spool, keys_waiting
from hadpsgd.tracking.uri import spool_folder
from hadpsgd.training import divergence
from hadpsgd.training import launch as launching
from hadpsgd.training.identity import checkpoint_folder, identity
from hadpsgd.training.ranks import Ranks


@pytest.mark.parametrize(("checkpoint_each", "starts"), [(False, 3), (True, 6)])
def test_starts_that_get_no_further_are_given_up(
    checkpoint_each: bool,
    starts: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    wanted = replace(launch_of(tmp_path, {"strategy": "ssgd", "learners": 4}), restarts=5)
    hash_ = identity(wanted.config, wanted.run_id, wanted.egs)
    folder = checkpoint_folder(wanted.config, run_id=wanted.run_id, hash_=hash_)
    made = []

    def crashes(_: Ranks) -> int:
        made.append(1)
        step = len(made) if checkpoint_each else 1
        saved = folder / f"{step:09}-{0:09}"
        saved.mkdir(exist_ok=True)
        (saved / f"node-0-of-1-{0:016}.pt").touch()
        return 1

    monkeypatch.setattr(Ranks, "run", crashes)
    assert launching.launch(wanted) == 1
    assert len(made) == starts
    # no rank was there to tell MLflow of the run
    [waits] = keys_waiting(spool_folder(wanted.config))
    assert {identity_of(folder).key, identity_of(wanted.out).key} == {waits}
    said_last = spool_folder(wanted.config) / waits / LAST_WORD
    assert from_json(said_last.read_text()).model_dump()["status"] == "FAILED"
    said = "3 starts ended without a new checkpoint" in capsys.readouterr().err
    assert said != checkpoint_each


def test_a_run_that_diverges_is_a_result_for_who_asks_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By hand it is a failure, and trained again; the workflow takes it once for all."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    wanted = launch_of(tmp_path, {"strategy": "single"})
    hash_ = identity(wanted.config, "single", wanted.egs)
    why = "gradient of learner 0 is not finite at step 3"
    starts = []

    def diverges(_: Ranks) -> int:
        starts.append(1)
        divergence.note(wanted.out, hash_, 3, why)
        return 2

    monkeypatch.setattr(Ranks, "run", diverges)
    assert launching.launch(wanted) == 2
    assert not (wanted.out / "summary.json").exists()
    assert json.loads((wanted.out / "failed.json").read_text())["why"] == why
    accepts = replace(wanted, accept_divergence=True)
    assert launching.launch(accepts) == 0 and "that is its result" in capsys.readouterr().err
    summary = json.loads((wanted.out / "summary.json").read_text())
    assert summary["diverged"] == why and summary["steps"] == 3
    assert not (wanted.out / "failed.json").exists()
    with pytest.raises(UserError, match=r"final\.pt: there is no model: its training diverged"):
        load_model(wanted.out / "final.pt")
    assert launching.launch(accepts) == 0 and len(starts) == 2
    assert launching.launch(wanted) == 2 and len(starts) == 3


def test_a_failure_is_told_though_another_run_told_of_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`hadpsgd track` of another run sends what waits: "killed", the word of who announced it."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    wanted = launch_of(tmp_path, {"strategy": "single"})
    spool = spool_folder(wanted.config)

    def told_and_failed(_: Ranks) -> int:
        [key] = keys_waiting(spool)
        Spool(spool, key=key).upload(lambda events: list(events).clear())
        assert keys_waiting(spool) == []
        return 2

    monkeypatch.setattr(Ranks, "run", told_and_failed)
    assert launching.launch(wanted) == 2
    [key] = keys_waiting(spool)
    last = from_json((spool / key / LAST_WORD).read_text())
    assert last.model_dump()["status"] == "FAILED"


def test_bad_input_is_no_divergence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where the start before diverged."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    wanted = replace(launch_of(tmp_path, {"strategy": "single"}), accept_divergence=True)
    wanted.out.mkdir()
    divergence.note(wanted.out, identity(wanted.config, "single", wanted.egs), 3, "NaN")
    monkeypatch.setattr(Ranks, "run", lambda _: 2)
    assert launching.launch(wanted) == 2
    assert not (wanted.out / "summary.json").exists()
    assert "status 2; logs" in json.loads((wanted.out / "failed.json").read_text())["why"]


def test_a_process_by_itself_is_started_without_torch(tmp_path: Path) -> None:
    """It meets nobody: the launcher opens no store, for which it would load torch."""
    wanted = launch_of(tmp_path, {"strategy": "single"})
    code = (
        "import sys; from hadpsgd.cli import main; status = main(); "
        "assert 'torch' not in sys.modules; sys.exit(status)"
    )
    arguments = ["launch", *wanted.arguments, "--logs", str(wanted.logs)]
    env = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
    for _ in range(2):  # the second finds all done
        subprocess.run([sys.executable, "-c", code, *arguments], env=env, check=True)
    assert (wanted.out / "final.pt").is_file()


@pytest.mark.slow
def test_a_second_launch_waits_and_finds_the_work_done(tmp_path: Path) -> None:
    """Two processes with one output, told to wait: the second says whom it waits for."""
    write_egs(tmp_path / "egs/train", 200, 1)
    write_egs(tmp_path / "egs/dev", 50, 2)
    config = write_config(tmp_path, [{"strategy": "ssgd", "learners": 2}])
    command = [sys.executable, "-m", "hadpsgd", "launch", "--config", str(config)]
    command += ["--run-id", "ssgd-2", "--egs", str(tmp_path / "egs/train")]
    command += ["--dev-egs", str(tmp_path / "egs/dev"), "--out", str(tmp_path / "out"), "--wait"]
    env = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) for _ in range(2)]
    told = [process.communicate(timeout=300)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    late = next(text for text in told if "waiting for its end" in text)
    assert "trained already" in late
    assert sum("epoch 3/3 done" in text for text in told) == 1
    assert (tmp_path / "out/final.pt").is_file()
    assert (tmp_path / "out/logs/rank-1.log").is_file()


@pytest.mark.parametrize("taken", ["out", "checkpoints"])
def test_a_second_launch_is_refused_in_one_line(
    taken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs with one output directory, or one run with two."""
    monkeypatch.setattr("hadpsgd.locks.GRACE_SECONDS", 0.3)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    wanted = launch_of(tmp_path, {"strategy": "single"})
    hash_ = identity(wanted.config, "single", wanted.egs)
    checkpoints = checkpoint_folder(wanted.config, run_id="single", hash_=hash_)
    folder = wanted.out if taken == "out" else checkpoints
    folder.mkdir(parents=True)
    with (
        locked(folder / LAUNCH_LOCK, "process 7 on a (Slurm job 4)"),
        pytest.raises(UserError, match=r"process 7 on a \(Slurm job 4\) trains this run already"),
    ):
        launching.launch(wanted)


def test_read_only_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = launch_of(tmp_path, {"strategy": "single"})

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)  # root may write anywhere
    with pytest.raises(UserError, match="no permission to write here"):
        launching.launch(wanted)
