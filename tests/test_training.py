"""The training command end to end, on a tiny task: results, resume, what it refuses."""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo  # DDP would import it in every process, for seconds
from processes import Outcome, Process, collect, launch, run
from training_data import write_config, write_egs

from hadpsgd.config import load
from hadpsgd.config.training import LearningRate
from hadpsgd.errors import UserError
from hadpsgd.files import sha256
from hadpsgd.models.build import load_model
from hadpsgd.training import final, replay_command
from hadpsgd.training.checkpoints import newest
from hadpsgd.training.job import Job, assemble
from hadpsgd.training.loop import End, train
from hadpsgd.training.rate import rate

RUNS: list[dict[str, Any]] = [
    {"strategy": "single"},
    {"strategy": "ssgd", "learners": 4},
    {"strategy": "ddp", "learners": 4},
    {"strategy": "dpsgd", "learners": 4},
    {"strategy": "adpsgd", "learners": 4},
    {"strategy": "rand", "learners": 4},
    {"strategy": "d1d", "learners": 4},
    {"strategy": "local", "learners": 4, "synchronous_epochs": 1, "average_every": 3},
    {"strategy": "hadpsgd", "learners": 4, "super_learner": 2},
    {"strategy": "hadpsgd", "learners": 4, "super_learner": 2, "among": "dpsgd"},
]
IDS = [
    "single",
    "ssgd-4",
    "ddp-4",
    "dpsgd-4",
    "adpsgd-4",
    "rand-4",
    "d1d-4",
    "local-4",
    "hadpsgd-2x2",
    "hadpsgd-2x2-dpsgd",
]
SYNCHRONOUS = ["single", "ssgd-4", "dpsgd-4", "d1d-4", "local-4", "hadpsgd-2x2-dpsgd", "ddp-4"]


@pytest.fixture(scope="module")
def egs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Examples to train on and held-out ones."""
    folder = tmp_path_factory.mktemp("egs")
    write_egs(folder / "train", 400, 1)
    write_egs(folder / "dev", 100, 2)
    return folder


def learners(run_id: str) -> int:
    """Processes of a run."""
    return next(int(r.get("learners", 1)) for r, i in zip(RUNS, IDS, strict=True) if i == run_id)


def rank_of_run(_: int, config: Path, run_id: str, egs: Path, out: Path, pause: float = 0) -> int:
    """What one process of `hadpsgd train` does; `pause` seconds after each step."""
    job = assemble(load(config), run_id, egs / "train", egs / "dev", out)
    if pause:
        slow_down(job, pause)
    end = train(job)
    if end is End.DONE and job.meeting.place.rank == 0:
        final.write(job, 1.0)
    if job.meeting.store is not None:  # the store is rank 0's
        job.meeting.store.set(f"left/{job.meeting.place.rank}", "")
        if job.meeting.place.rank == 0:
            job.meeting.store.wait([f"left/{r}" for r in range(job.meeting.place.world)])
    return int(end)


def slow_down(job: Job, pause: float) -> None:
    """Leave time to interrupt."""
    step = job.engine.step

    def slow_step(*args: Any, **kwargs: Any) -> Any:
        time.sleep(pause)
        return step(*args, **kwargs)

    job.engine.step = slow_step  # type: ignore[method-assign]


def start(
    folder: Path, egs: Path, run_id: str, pause: float = 0, **training: Any
) -> dict[int, Process]:
    """Begin a run whose results lie in `folder`."""
    config = write_config(folder, RUNS, **training)
    arguments = (config, run_id, egs, folder / "out", pause)
    return launch(learners(run_id), rank_of_run, *arguments)


def wait_for(file: Path) -> None:
    """Until a row is written: training is under way."""
    deadline = time.monotonic() + 30
    while not (file.exists() and file.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.01)


def finish(folder: Path, egs: Path, run_id: str, **training: Any) -> torch.Tensor:
    """Run to the end; the final model's weights."""
    outcomes = collect(start(folder, egs, run_id, **training))
    assert not [o.error for o in outcomes.values() if o.error], outcomes
    return weights(folder / "out")


def weights(out: Path) -> torch.Tensor:
    """Of final.pt."""
    model, _ = load_model(out / "final.pt")
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()


@pytest.mark.parametrize("run_id", IDS)
def test_learns_and_leaves_its_files(run_id: str, egs: Path, tmp_path: Path) -> None:
    # a gradient that is a round late bears a smaller step
    gentle = {"learning_rate": {"base": 0.2, "base_batch": 40}, "epochs": 12}
    settings: dict[str, Any] = gentle if run_id == "d1d-4" else {}
    finish(tmp_path, egs, run_id, **settings)
    out = tmp_path / "out"
    summary = json.loads((out / "summary.json").read_text())
    epochs = settings.get("epochs", 3)
    assert summary["run"] == run_id and summary["steps"] == 10 * epochs
    assert summary["heldout_accuracy"] > 0.5 and summary["heldout_loss"] < 1.4
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    scores = [row for row in rows if "heldout_loss" in row]
    assert [row["epoch"] for row in scores] == [*range(1, epochs + 1)]
    assert scores[-1]["heldout_loss"] < scores[0]["heldout_loss"]
    if run_id in ("adpsgd-4", "hadpsgd-2x2"):
        sees_its_mixes([row for row in rows if "loss" in row])
    _, meta = load_model(out / "final.pt")
    counts = np.load(egs / "train" / "pdf_counts.npy")
    np.testing.assert_allclose(meta.log_priors.exp(), counts / counts.sum(), rtol=1e-5)


def sees_its_mixes(rows: list[dict[str, Any]]) -> None:
    """Rank 0 tells of its neighbours, of its time and, as far as they told, of the others."""
    assert any(0 < row.get("consensus_distance", 0) < 1 for row in rows)
    assert any("lag_behind_1" in row for row in rows)
    for row in rows:
        shares = [row[f"share_{what}"] for what in ("compute", "communication", "data")]
        assert sum(shares) == pytest.approx(1, abs=0.05)
        if row["mixes_per_step"]:
            assert row["megabytes_sent_per_step"] > 0
    assert sum(count for row in rows for count in row["staleness_counts"].values()) == 30
    told = [name for name in rows[-1] if name.endswith("/learner_frames_per_second")]
    assert len(told) == 4
    assert rows[-1]["frames_per_second"] == pytest.approx(sum(rows[-1][name] for name in told))


@pytest.mark.parametrize("run_id", SYNCHRONOUS)
def test_same_seed_same_bits(run_id: str, egs: Path, tmp_path: Path) -> None:
    first = finish(tmp_path / "a", egs, run_id)
    assert torch.equal(first, finish(tmp_path / "b", egs, run_id))


def last_moment(folder: Path) -> str:
    """Of the newest checkpoint that rank 0 has written its part of."""
    while True:
        try:
            return max((path.parent.name for path in folder.rglob("node-0-*.pt")), default="")
        except FileNotFoundError:  # an old one was removed while we looked
            continue


def kill_and_resume(folder: Path, egs: Path, run_id: str, kills: int, **settings: Any) -> None:
    """kill -9 all learners at random moments; then let them finish."""
    draws = np.random.default_rng(IDS.index(run_id))
    for _ in range(kills):
        before = last_moment(folder)
        started = start(folder, egs, run_id, pause=0.02, **settings)
        deadline = time.monotonic() + 30
        while last_moment(folder) <= before and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(draws.uniform(0.0, 0.2))
        for process in started.values():
            os.kill(process.pid, signal.SIGKILL)
        assert all(o.code == -signal.SIGKILL for o in collect(started).values())
    finish(folder, egs, run_id, **settings)


@pytest.mark.parametrize("run_id", [*SYNCHRONOUS[:-1], "adpsgd-4", "hadpsgd-2x2"])
def test_killed_run_resumes(
    run_id: str, egs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Synchronous runs end with the bits of the unbroken run, all with those of their record."""
    settings = {"checkpoint_minutes": 0.001, "epochs": 10}
    kill_and_resume(tmp_path / "broken", egs, run_id, 3, **settings)
    assert f"{run_id}: learner 0 resumed at step " in capfd.readouterr().err
    rows = (tmp_path / "broken/out/metrics.jsonl").read_text().splitlines()
    steps = [json.loads(row)["step"] for row in rows if "loss" in json.loads(row)]
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
    settings = {"checkpoint_minutes": 0.001, "epochs": 100}
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
    return run(processes, replay_rank, folder / "config.yaml", run_id, egs / "train")


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
    path.rename(path.with_name(f"node-2-of-f-{sha256(path)[:16]}.pt"))
    assert replay_again(tmp_path, egs, "adpsgd-4") == [1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("run_id", ["single", "ssgd-4", "adpsgd-4", "hadpsgd-2x2", "d1d-4"])
def test_signal_asks_for_a_requeue(
    run_id: str, number: signal.Signals, egs: Path, tmp_path: Path
) -> None:
    """A signal to one rank stops all with a checkpoint and status 75; then it goes on."""
    started = start(tmp_path, egs, run_id, pause=0.02)
    wait_for(tmp_path / "out/metrics.jsonl")
    os.kill(started[learners(run_id) - 1].pid, number)
    outcomes = collect(started)
    assert [o.value for o in outcomes.values()] == [75] * len(started), outcomes
    assert not (tmp_path / "out/final.pt").exists()
    finish(tmp_path, egs, run_id)
    rows = [json.loads(r) for r in (tmp_path / "out/metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows if "heldout_loss" in row] == [1, 2, 3]


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
    damage(next(checkpoints[-1].glob("node-0-*.pt")))
    (tmp_path / "out/final.pt").unlink()
    assert torch.equal(finish(tmp_path, egs, "ssgd-4", **settings), whole)
    assert "damaged checkpoint" in capfd.readouterr().err


def failures(outcomes: dict[int, Outcome]) -> list[str]:
    """First lines of what went wrong."""
    return [o.error.splitlines()[0] for o in outcomes.values() if o.error]


def test_missing_rank_is_named(egs: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, RUNS, rendezvous_seconds=1)
    started = launch(4, rank_but_two, config, egs, tmp_path / "out")
    errors = failures(collect(started))
    assert len(errors) == 3
    assert all("rank 2 did not come within 1 s" in error for error in errors)


def rank_but_two(rank: int, config: Path, egs: Path, out: Path) -> None:
    """Rank 2 never starts."""
    if rank != 2:
        assemble(load(config), "adpsgd-4", egs / "train", egs / "dev", out)


def test_other_config_is_named(egs: Path, tmp_path: Path) -> None:
    one = write_config(tmp_path / "one", RUNS)
    other = write_config(tmp_path / "other", RUNS, momentum=0.6)
    started = launch(4, rank_with_own_config, [one, one, one, other], egs, tmp_path / "out")
    errors = failures(collect(started))
    assert len(errors) == 4
    assert all("rank 3 runs another config or model than rank 0" in error for error in errors)


def rank_with_own_config(rank: int, configs: list[Path], egs: Path, out: Path) -> None:
    """Each rank reads its own config."""
    assemble(load(configs[rank]), "adpsgd-4", egs / "train", egs / "dev", out)


def test_wrong_number_of_processes(egs: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, RUNS)
    with pytest.raises(UserError, match="the run has 4 learners, but 1 processes were started"):
        assemble(load(config), "ssgd-4", egs / "train", egs / "dev", tmp_path)


@pytest.mark.parametrize("policy", ["stop", "skip"])
@pytest.mark.parametrize("run_id", ["single", "ssgd-4", "adpsgd-4", "hadpsgd-2x2"])
def test_gradient_that_is_not_finite(run_id: str, policy: str, egs: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, RUNS, not_finite=policy)
    count = learners(run_id)
    started = launch(count, rank_with_nan, config, run_id, egs, tmp_path / "out", count - 1)
    outcomes = collect(started)
    if policy == "stop":
        wanted = f"gradient of learner {count - 1} is not finite at step 4"
        assert any(wanted in error for error in failures(outcomes)), outcomes
        assert not any("hung" in error for error in failures(outcomes)), outcomes
    else:
        assert not failures(outcomes)
        skipped = [o.value for o in outcomes.values()]
        assert skipped[count - 1] == 1
        assert sum(skipped) == {"ssgd-4": 4, "hadpsgd-2x2": 2}.get(run_id, 1)


def rank_with_nan(rank: int, config: Path, run_id: str, egs: Path, out: Path, sick: int) -> int:
    """Learner `sick` has a NaN in its gradient number 4; the steps it skipped."""
    job = assemble(load(config), run_id, egs / "train", egs / "dev", out)
    parameter = next(iter(job.model.parameters()))

    def spoil(gradient: torch.Tensor) -> torch.Tensor:
        return gradient * torch.nan if (rank, job.engine.steps) == (sick, 4) else gradient

    parameter.register_hook(spoil)
    train(job)
    own = out / ("metrics.jsonl" if rank == 0 else f"metrics.rank{rank}.jsonl")
    rows = [json.loads(line) for line in own.read_text().splitlines()]
    return sum(row.get("skipped", 0) for row in rows)


def test_learning_rate_rule() -> None:
    settings = LearningRate(base=0.1, base_batch=256, warmup_epochs=10, anneal_after=10)
    assert rate(settings, 2560, 0) == pytest.approx(0.1)
    assert rate(settings, 2560, 5) == pytest.approx(0.55)
    assert rate(settings, 2560, 9.999) == pytest.approx(1.0, rel=1e-3)
    assert rate(settings, 8192, 9.9999) == pytest.approx(3.2, rel=1e-3)
    assert rate(settings, 2560, 10) == pytest.approx(2**-0.5)
    assert rate(settings, 2560, 10.99) == pytest.approx(2**-0.5)
    assert rate(settings, 2560, 15.5) == pytest.approx(2**-3)
    assert rate(settings, 256, 3) == pytest.approx(0.1)
    assert rate(settings, 64, 0) == pytest.approx(0.025)


def test_run_sees_every_learner_once(egs: Path, tmp_path: Path) -> None:
    assert (
        run(4, rank_of_run, write_config(tmp_path, RUNS), "ssgd-4", egs, tmp_path / "o") == [0] * 4
    )
