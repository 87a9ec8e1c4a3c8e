"""Training that is killed or told to stop, and goes on; replay of its record."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo  # DDP would import it in every process, for seconds
from processes import collect, run
from torch.testing import assert_close
from training_runs import (
    IDS,
    SYNCHRONOUS,
    finish,
    learners,
    start,
    wait_for,
    weights,
    write_examples,
)

from hadpsgd.decentralized.core.events import Update
from hadpsgd.decentralized.record.entries import Entry
from hadpsgd.decentralized.record.reading import read
from hadpsgd.errors import UserError
from hadpsgd.files import sha256
from hadpsgd.training import replay_command
from hadpsgd.training.saved import newest

pytestmark = pytest.mark.usefixtures("unrecorded")


@pytest.fixture(scope="module")
def egs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Examples to train on and held-out ones."""
    return write_examples(tmp_path_factory.mktemp("egs"))


def last_moment(folder: Path) -> str:
    """Of the newest checkpoint that rank 0 has written its part of."""
    while True:
        try:
            return max((path.parent.name for path in folder.rglob("node-0.*.pt")), default="")
        except FileNotFoundError:  # an old one was removed while we looked
            continue


def kill_and_resume(folder: Path, egs: Path, run_id: str, kills: int, **settings: Any) -> None:
    """kill -9 all learners at random moments; then let them finish.

    Each step is made so long that a slow disk does not let them finish before.
    """
    draws = np.random.default_rng(IDS.index(run_id))
    for _ in range(kills):
        before = last_moment(folder)
        started = start(folder, egs, run_id, pause=0.1, **settings)
        deadline = time.monotonic() + 30
        while last_moment(folder) <= before and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(draws.uniform(0.0, 0.2))
        for process in started.values():
            os.kill(process.pid, signal.SIGKILL)
        assert all(o.code == -signal.SIGKILL for o in collect(started).values())
    finish(folder, egs, run_id, **settings)


DRAWN = "adpsgd-4-random-partner"
KILLED = [*SYNCHRONOUS[:-1], "adpsgd-4", "hadpsgd-2x2", DRAWN, "hadpsgd-2x2-int8"]
KILLED.remove("noloco-4")  # its state is like diloco's; test_outer.py stops it as well


@pytest.mark.parametrize("run_id", KILLED)
def test_killed_run_resumes(
    run_id: str, egs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Synchronous runs end with the bits of the unbroken run, all with those of their record."""
    settings = {"checkpoint_minutes": 0.001, "epochs": 10}
    kill_and_resume(tmp_path / "broken", egs, run_id, 2, **settings)
    assert f"{run_id}: learner 0 resumed at step " in capfd.readouterr().err
    lines = (tmp_path / "broken/out/metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    summary = json.loads((tmp_path / "broken/out/summary.json").read_text())
    assert summary["seconds"] == max(row.get("seconds", 0.0) for row in rows)  # of all attempts
    steps = [row["step"] for row in rows if "loss" in row]
    assert len(steps) == len(set(steps)) and steps == sorted(steps)
    assert replay_again(tmp_path / "broken", egs, run_id) == [0]
    if run_id in SYNCHRONOUS:
        same_end(tmp_path, egs, run_id, **settings)


def same_end(folder: Path, egs: Path, run_id: str, **settings: Any) -> None:
    """The broken run's last weights and momentum are those of one that nobody killed."""
    whole = finish(folder / "whole", egs, run_id, **settings)
    assert torch.equal(weights(folder / "broken/out"), whole)
    ends = [
        newest(next((folder / name / "results/checkpoints/tiny").iterdir()))
        for name in ("broken", "whole")
    ]
    for node in ends[0].parts():
        broken, unbroken = (end.load(node) for end in ends)
        assert broken["steps"] == unbroken["steps"]
        for what in ("weights", "velocity"):
            assert torch.equal(broken[what], unbroken[what])
        assert_close(broken.get("outer"), unbroken.get("outer"), rtol=0, atol=0)


def test_killed_ddp_resumes(egs: Path, tmp_path: Path) -> None:
    """Not to the same bits: in its first step a DDP process sums in another order than later."""
    settings = {"checkpoint_minutes": 0.001, "epochs": 10}
    kill_and_resume(tmp_path / "broken", egs, "ddp-4", 2, **settings)
    whole = finish(tmp_path / "whole", egs, "ddp-4", **settings)
    apart = torch.linalg.vector_norm(weights(tmp_path / "broken/out") - whole)
    assert apart < 1e-5 * torch.linalg.vector_norm(whole)


@pytest.mark.slow
@pytest.mark.parametrize("run_id", ["dpsgd-4", "adpsgd-4"])
def test_twenty_kills(run_id: str, egs: Path, tmp_path: Path) -> None:
    settings = {"checkpoint_minutes": 0.001, "epochs": 40}
    kill_and_resume(tmp_path / "broken", egs, run_id, 20, **settings)
    assert replay_again(tmp_path / "broken", egs, run_id) == [0]
    if run_id in SYNCHRONOUS:
        same_end(tmp_path, egs, run_id, **settings)


REPLAYED = [run_id for run_id in IDS if run_id != "ddp-4"]


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("run_id", REPLAYED)
def test_replay_is_bit_for_bit(run_id: str, processes: int, egs: Path, tmp_path: Path) -> None:
    finish(tmp_path, egs, run_id)
    assert replay_again(tmp_path, egs, run_id, processes) == [0] * processes


def replay_again(folder: Path, egs: Path, run_id: str, processes: int = 1) -> list[int]:
    """Exit codes of `hadpsgd replay`."""
    # a hundred epochs of four learners one after another: a minute is not enough on a busy machine
    return run(processes, replay_rank, folder / "config.yaml", run_id, egs / "train", seconds=300.0)


def replay_rank(_: int, config: Path, run_id: str, egs: Path) -> int:
    """One process of the replay."""
    parser = argparse.ArgumentParser()
    replay_command.configure(parser)
    arguments = ["--config", str(config), "--run-id", run_id, "--egs", str(egs)]
    return replay_command.run(parser.parse_args(arguments))


def test_replay_notices_another_bit(egs: Path, tmp_path: Path) -> None:
    finish(tmp_path, egs, "adpsgd-4")
    checkpoint = newest(next((tmp_path / "results/checkpoints/tiny").iterdir()))
    part = checkpoint.load(2)
    part["weights"][3] = torch.nextafter(part["weights"][3], torch.tensor(9.0))
    path = checkpoint.parts()[2]
    torch.save(part, path)
    path.rename(path.with_name(f"{path.name.rpartition('-')[0]}-{sha256(path)[:16]}.pt"))
    assert replay_again(tmp_path, egs, "adpsgd-4") == [1]


def test_replay_refuses_a_record_that_lost_a_gradient(
    egs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(tmp_path, egs, "single")

    def forget(*args: Any) -> list[Entry]:
        return [e for e in read(*args) if not (isinstance(e, Update) and e.step == 2)]

    monkeypatch.setattr(replay_command, "read", forget)
    with pytest.raises(UserError, match=r"record: learner 0: gradients lost \[2\]"):
        replay_rank(0, tmp_path / "config.yaml", "single", egs / "train")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("run_id", ["single", "ssgd-4", "adpsgd-4", "hadpsgd-2x2", "d1d-4", DRAWN])
def test_signal_asks_for_a_requeue(
    run_id: str, number: signal.Signals, egs: Path, tmp_path: Path
) -> None:
    """A signal to one rank stops all with a checkpoint and status 75; then it goes on."""
    started = start(tmp_path, egs, run_id, pause=0.1)  # two seconds are left after the first row
    wait_for(tmp_path / "out/metrics.jsonl")
    os.kill(started[learners(run_id) - 1].pid, number)
    outcomes = collect(started)
    assert [o.value for o in outcomes.values()] == [75] * len(started), outcomes
    assert not (tmp_path / "out/final.pt").exists()
    finish(tmp_path, egs, run_id)
    rows = [json.loads(r) for r in (tmp_path / "out/metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows if "heldout_loss" in row] == [1, 2, 3]


def test_checkpoint_behind_the_end_is_refused(egs: Path, tmp_path: Path) -> None:
    """Put there by hand, from a longer run."""
    for name, epochs in (("long", 3), ("short", 2)):
        finish(tmp_path / name, egs, "single", epochs=epochs)
    long, short = (
        next((tmp_path / name / "results/checkpoints/tiny").iterdir()) for name in ("long", "short")
    )
    shutil.rmtree(short)
    shutil.copytree(long, short)
    [outcome] = collect(start(tmp_path / "short", egs, "single", epochs=2)).values()
    assert "a checkpoint of step 30, and the run ends at 20" in str(outcome.error)


def damage(part: Path) -> None:
    """Flip a byte in the middle."""
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)


def test_damaged_checkpoint_is_passed_over(
    egs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = {"checkpoint_minutes": 0.0005, "keep_checkpoints": 3}
    whole = finish(tmp_path, egs, "ssgd-4", **settings)
    checkpoints = sorted((tmp_path / "results/checkpoints/tiny").glob("ssgd-4-*/0*"))
    assert len(checkpoints) == 3
    damage(next(checkpoints[-1].glob("node-0.*.pt")))
    (tmp_path / "out/final.pt").unlink()
    assert torch.equal(finish(tmp_path, egs, "ssgd-4", **settings), whole)
    assert "damaged checkpoint" in capfd.readouterr().err
