"""`hadpsgd images` trains: learning, the average at the end, going on, the manual's commands."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import picture_folders
import pytest
import torch
import torch._dynamo  # optimizers would import it in every process, for seconds
from picture_folders import BATCH, SIZE, settings
from processes import collect, launch, run
from servers import free_port
from torch import nn

from hadpsgd import locks
from hadpsgd.cli import main
from hadpsgd.decentralized.core.engine import LostMemberError, NotFiniteError
from hadpsgd.decentralized.network.transport import UnsettledError
from hadpsgd.decentralized.trainer import Trainer
from hadpsgd.errors import UserError
from hadpsgd.images import command as images_command
from hadpsgd.images import training
from hadpsgd.images.folders import Folders
from hadpsgd.images.metrics import Score
from hadpsgd.images.training import Settings, train
from hadpsgd.run_folder import LAUNCH_LOCK
from hadpsgd.training.saved import complete

ROOT = Path(__file__).resolve().parents[1]
NEVER = 1e9


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return picture_folders.ready(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tests' own process is one learner, wherever the tests run."""
    for name in ("RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    yield


def learner(
    rank: int, wanted: Settings, stop_at: float = NEVER, signal_at: float = NEVER
) -> dict[str, Any]:
    """One process; what its model had before the end, and has after it. It may die in an epoch, or,
    where processes die one after the other, wait for it; rank 1 may be sent a signal."""
    step, finish, seen = Trainer.step, Trainer.finish, {}

    def counted(trainer: Trainer) -> Any:
        if trainer._shares[0].progress >= stop_at:
            if not wanted.save_every:
                time.sleep(600)
            os._exit(9)
        if rank == 1 and trainer._shares[0].progress >= signal_at:
            os.kill(os.getpid(), signal.SIGUSR1)
        return step(trainer)

    def watched(trainer: Trainer) -> None:
        seen["own"] = state_of(trainer.engine.module)
        finish(trainer)
        seen["mean"] = state_of(trainer.engine.module)

    Trainer.step = counted  # type: ignore[method-assign,assignment]
    Trainer.finish = watched  # type: ignore[method-assign,assignment]
    train(wanted)
    return seen


def state_of(module: nn.Module) -> dict[str, np.ndarray]:
    return {name: value.numpy().copy() for name, value in module.state_dict().items()}


def rows_of(out: Path, learners: int) -> list[list[dict[str, Any]]]:
    """Of each rank."""
    return [
        [json.loads(line) for line in (out / f"metrics/rank-{rank}.jsonl").read_text().splitlines()]
        for rank in range(learners)
    ]


def statistics_by_hand(net: nn.Module, pictures: Path, wanted: Settings) -> dict[str, np.ndarray]:
    """Of the first BatchNorm, over the batches that the end draws, in NumPy."""
    folders = Folders.open(pictures, size=SIZE)
    seed = wanted.seed + wanted.recipe.epochs
    some = folders.some(wanted.statistics_batches, batch=BATCH, seed=seed, workers=0)
    with torch.no_grad():
        outputs = [net.stem[0](images).double().numpy() for images, _ in some]  # type: ignore[union-attr,index,operator]
    assert len(outputs) == wanted.statistics_batches
    means = [x.mean((0, 2, 3)) for x in outputs]
    variances = [x.transpose(1, 0, 2, 3).reshape(8, -1).var(1, ddof=1) for x in outputs]
    return {"running_mean": np.mean(means, 0), "running_var": np.mean(variances, 0)}


@pytest.mark.parametrize("strategy", ["adpsgd", "rand", "d1d"])
def test_eight_learners_learn(strategy: str, pictures: Path, tmp_path: Path) -> None:
    wanted = settings(pictures, tmp_path, engine={"strategy": strategy})
    results = run(8, learner, wanted, seconds=240)

    # one network at the end, its statistics mixed as its weights are; counters are each one's own
    for result in results:
        for name, value in result["mean"].items():
            assert value.dtype == result["own"][name].dtype
            if name.endswith("num_batches_tracked"):
                assert value == result["own"][name]
                assert strategy != "d1d" or value == 6 * 3
            else:
                np.testing.assert_array_equal(value, results[0]["mean"][name], err_msg=name)
    spread = max(
        np.abs(result["own"]["stem.1.running_var"] - results[0]["mean"]["stem.1.running_var"]).max()
        for result in results
    )
    assert strategy == "d1d" or spread > 1e-6  # they were different ones

    found = torch.load(tmp_path / "final.pt")
    net = picture_folders.Tiny(3)
    net.load_state_dict(found["model"])
    assert found["classes"] == list(picture_folders.CLASSES)
    for name, value in net.named_parameters():
        np.testing.assert_array_equal(value.detach().numpy(), results[0]["mean"][name])
    for name, by_hand in statistics_by_hand(net, pictures, wanted).items():
        np.testing.assert_allclose(found["model"][f"stem.1.{name}"].numpy(), by_hand, rtol=1e-4)

    # what the summary says is what the file does
    summary = json.loads((tmp_path / "summary.json").read_text())
    held_out = Folders.open(pictures, size=SIZE).held_out
    net.eval()
    with torch.no_grad():
        right = [int(net(x[None]).argmax()) == y for x, y in map(held_out.__getitem__, range(30))]
    assert summary["heldout_top1"] == pytest.approx(np.mean(right))
    assert summary["heldout_top1"] >= 0.9 and summary["learners"] == 8

    rows = rows_of(tmp_path, 8)
    for own in rows:
        assert [row["epoch"] for row in own] == [1, 2, 3, 4, 5, 6]
        # who did none of the last epoch's batches had no rate in it
        assert not own[-1]["images"] or own[-1]["rate"] == pytest.approx(0.02)
    for epoch in range(6):  # those of d1d have equal shares
        images = [own[epoch]["images"] for own in rows]
        assert sum(images) == 8 * 3 * BATCH and (strategy != "d1d" or min(images) == max(images))
    losses = [
        sum((own[epoch]["loss"] or 0.0) * own[epoch]["images"] for own in rows) for epoch in (0, -1)
    ]
    assert losses[1] < 0.9 * losses[0]
    assert sum(own[0]["heldout_images"] for own in rows) == 30
    assert any(row["distance"] for own in rows for row in own)
    assert not list(tmp_path.rglob("*.tmp"))


def test_one_learner_in_bfloat16(pictures: Path, tmp_path: Path) -> None:
    """Alone, with its own statistics; no recipe's accuracy is asked of two epochs."""
    wanted = settings(pictures, tmp_path, bf16=True, statistics_batches=0, recipe={"epochs": 2})
    train(wanted)
    (rows,) = rows_of(tmp_path, 1)
    assert [row["step"] for row in rows] == [24, 48] and rows[1]["loss"] < rows[0]["loss"]
    assert rows[-1]["distance"] is None
    found = torch.load(tmp_path / "final.pt")["model"]
    assert found["stem.1.num_batches_tracked"] == 48 and found["fc.weight"].dtype == torch.float32
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["heldout_top1"] == rows[-1]["heldout_top1"]


# --- going on ---


@pytest.mark.parametrize(
    ("engine", "kind"),
    [
        ({"strategy": "d1d"}, "same bits"),
        ({"strategy": "hadpsgd", "super_learner": 2, "among": "dpsgd"}, "same bits"),
        ({"strategy": "adpsgd"}, "goes on"),
        ({"strategy": "hadpsgd", "super_learner": 2}, "goes on"),
    ],
)
def test_a_run_that_died_goes_on(
    engine: dict[str, Any], kind: str, pictures: Path, tmp_path: Path
) -> None:
    """All processes die late in the second of three epochs, each of 6 steps a learner.

    Those that share their work are killed at once, when the first epoch is saved."""
    every = 4 if kind == "same bits" else 0
    of = {"engine": engine, "save_every": every, "recipe": {"epochs": 3}}
    whole = run(4, learner, settings(pictures, tmp_path / "whole", **of), seconds=240)
    broken = settings(pictures, tmp_path / "broken", **of)
    started = launch(4, learner, broken, 1.8)
    saved = f"*/*{2 if every else 1}/node-*.pt"
    if every:
        assert {outcome.code for outcome in collect(started, 240).values()} == {9}
    else:
        deadline = time.monotonic() + 240
        while len(list((tmp_path / "broken/checkpoints").glob(saved))) < 4:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for process in started.values():
            process.kill()
    assert not (tmp_path / "broken/final.pt").exists()
    assert len(list((tmp_path / "broken/checkpoints").glob(saved))) == 4
    again = run(4, learner, broken, seconds=240)

    assert not (tmp_path / "broken/checkpoints").exists()
    rows = [rows_of(tmp_path / name, 4) for name in ("whole", "broken")]
    for ours, theirs in zip(*rows, strict=True):
        assert [row["epoch"] for row in theirs] == [1, 2, 3]
        for row, other in zip(ours, theirs, strict=True):
            if kind == "same bits":
                same = ("rate", "loss", "top1", "heldout_loss", "heldout_top1")
                assert [row[name] for name in same] == [other[name] for name in same]
                assert row["step"] == 6 * row["epoch"]
    for epoch in range(3):
        assert sum(own[epoch]["images"] for own in rows[1]) == 4 * 6 * BATCH
    for ours, theirs in zip(whole, again, strict=True):
        for name, value in ours["own"].items():
            assert np.isfinite(theirs["own"][name]).all()
            if kind == "same bits":
                np.testing.assert_array_equal(value, theirs["own"][name], err_msg=name)
    if kind == "same bits":
        first, second = (torch.load(tmp_path / n / "final.pt") for n in ("whole", "broken"))
        assert all(torch.equal(v, second["model"][k]) for k, v in first["model"].items())

    # a finished run is not made again, also where nothing but its result is left
    before = (tmp_path / "broken/final.pt").stat().st_mtime_ns
    run(4, learner, broken, 0.0, seconds=240)
    assert (tmp_path / "broken/final.pt").stat().st_mtime_ns == before


@pytest.mark.parametrize("strategy", ["dpsgd", "adpsgd"])
def test_a_signal_stops_all_and_the_command_goes_on(
    strategy: str, pictures: Path, tmp_path: Path
) -> None:
    """In the second of three epochs, of one rank; nothing of what was done is done again."""
    of = {"engine": {"strategy": strategy}, "recipe": {"epochs": 3}}
    wanted = settings(pictures, tmp_path / "stopped", **of)
    run(3, learner, wanted, NEVER, 1.3, seconds=240)
    assert not (tmp_path / "stopped/final.pt").exists()
    (folder,) = (tmp_path / "stopped/checkpoints").iterdir()
    # after the first epoch, and at the stop
    assert len(complete(folder)) == 2
    again = run(3, learner, wanted, seconds=240)
    rows = rows_of(tmp_path / "stopped", 3)
    images = [sum(own[epoch]["images"] for own in rows) for epoch in range(3)]
    assert images[0] > 0 and images == [images[0]] * 3
    if strategy == "dpsgd":
        whole = run(3, learner, settings(pictures, tmp_path / "whole", **of), seconds=240)
        for ours, theirs in zip(whole, again, strict=True):
            for name, value in ours["own"].items():
                np.testing.assert_array_equal(value, theirs["own"][name], err_msg=name)


def test_a_second_training_in_a_folder_is_refused(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both would write its metrics, checkpoints and result."""
    monkeypatch.setattr(locks, "GRACE_SECONDS", 0.0)
    with locks.locked(tmp_path / LAUNCH_LOCK, "process 1 on here"):
        with pytest.raises(UserError, match="process 1 on here trains this model already"):
            train(settings(pictures, tmp_path))
        assert [file.name for file in tmp_path.iterdir()] == [LAUNCH_LOCK]


@pytest.mark.parametrize(
    "error, said",
    [
        (NotFiniteError("loss nan at step 3"), "loss nan at step 3. Lower --base-rate"),
        (LostMemberError("rank 1 is gone"), "other learners are lost: rank 1 is gone. See why"),
        (
            UnsettledError(rank=0, round_=7, arrived={}, lost=[1]),
            "other learners are lost: rank 0 lost ranks [1] in round 7",
        ),
        (TimeoutError(), "other learners are lost: "),
    ],
)
def test_what_ends_a_learner_is_one_line(
    error: Exception,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def ends(_: Settings) -> None:
        raise error

    monkeypatch.setattr(images_command, "train", ends)
    assert main(["images", str(tmp_path), "--out", str(tmp_path / "o")]) == 2
    assert said in capsys.readouterr().err


def test_an_epoch_in_which_others_took_all() -> None:
    means = Score().means()
    assert means == {"loss": None, "top1": None, "top5": None}
    assert training._learned({"images": 0, **means}) == "no batch for this learner"


def test_checkpoints_by_steps_need_equal_steps(pictures: Path, tmp_path: Path) -> None:
    wanted = settings(pictures, tmp_path, engine={"strategy": "adpsgd"}, save_every=4)
    outcomes = collect(launch(2, learner, wanted), 240)
    assert all("Leave --save-every out" in outcome.error for outcome in outcomes.values())


# --- the commands of the manual ---


def command(page: str, first: str) -> str:
    """The line of a page that begins with these words."""
    found = re.search(rf"^{re.escape(first)}.*(?:\\\n.*)*", page, re.MULTILINE)
    assert found
    return found[0].replace("\\\n", " ")


@pytest.mark.slow
@pytest.mark.parametrize("by", ["torchrun", "srun"])
def test_the_manuals_commands(by: str, pictures: Path, tmp_path: Path) -> None:
    """Two learners of one host; for srun, what it tells its tasks is set here."""
    page = (ROOT / "docs/images.md").read_text()
    words = command(page, f"{by} ").split()
    (tmp_path / "imagenet").symlink_to(pictures)
    small = "--model resnet18 --size 8 --batch 40 --epochs 1 --workers 0 --statistics-batches 1"
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    at = words.index("hadpsgd")
    arguments = [*words[at + 1 :], *small.split()]
    starts: list[tuple[list[str], dict[str, str]]] = []
    if by == "torchrun":
        starts.append((["torch.distributed.run", "--standalone", "--nproc-per-node", "2"], env))
        arguments = ["-m", "hadpsgd", *arguments]
        assert words[1:3] == ["--standalone", "--nproc-per-node"] and words[4] == "-m"
    else:
        port = free_port()  # the one of a job's number may be taken
        for rank in range(2):
            slurm = {"SLURM_PROCID": str(rank), "SLURM_NTASKS": "2", "SLURM_LOCALID": str(rank)}
            slurm |= {
                "MASTER_PORT": str(port),
                "SLURM_JOB_ID": str(os.getpid()),
                "SLURM_STEP_ID": "0",
            }
            starts.append((["hadpsgd"], env | slurm | {"SLURM_STEP_NODELIST": "localhost"}))
    running = [
        subprocess.Popen(
            [sys.executable, "-m", *program, *arguments],
            cwd=tmp_path,
            env=its,
            stderr=subprocess.PIPE,
            text=True,
        )
        for program, its in starts
    ]
    told = [process.communicate(timeout=300)[1] for process in running]
    assert [process.returncode for process in running] == [0] * len(running), told
    (out,) = (tmp_path / "runs").iterdir()
    summary = json.loads((out / "summary.json").read_text())
    assert summary["learners"] == 2 and summary["model"] == "resnet18"
