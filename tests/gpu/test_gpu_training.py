"""`hadpsgd train` on a GPU: precisions, the same bits again, resumed and replayed ones."""

from __future__ import annotations

import json
import os
import signal
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import collect, run
from test_training_resumed import replay_rank
from training_data import write_config
from training_runs import RUNS, learners, start, weights
from virtual_training import arguments, run_of_kind

from hadpsgd.cli import main
from hadpsgd.config import load
from hadpsgd.models.build import load_model
from hadpsgd.models.long_input import hidden
from hadpsgd.training.end import End
from hadpsgd.training.gradients import Gradients
from hadpsgd.training.job import assemble
from hadpsgd.training.loop import step
from hadpsgd.training.metrics import Meter
from hadpsgd.training.work import work_of

SINGLE: dict[str, Any] = {"name": "single", "strategy": "single"}
PROCESSES = ("ssgd-4", "adpsgd-4", "hadpsgd-2x2", "d1d-4", "local-4", "ddp-4")
SAME = {"fp32": 1e-3, "fp64": 1e-6}
"""Precisions in which devices are compared."""


def losses(folder: Path) -> list[float]:
    """Held out, epoch by epoch."""
    rows = map(json.loads, (folder / "out/metrics.jsonl").read_text().splitlines())
    return [row["heldout_loss"] for row in rows if "heldout_loss" in row]


def train(folder: Path, egs: Path, run: dict[str, Any], **training: Any) -> int:
    """`hadpsgd train` of one process."""
    return main(arguments(folder, egs, run, **training))


def all_alone(_: int, folder: Path, egs: Path, device: str) -> None:
    """Trainings of one process, one after the other: a GPU takes seconds to begin."""
    for name in ("fp32", "tf32", "bf16", "fp64"):
        assert train(folder / name, egs, SINGLE, device=device, precision=name) == End.DONE
    for name in SAME:
        place = folder / f"{name}-processor"
        assert train(place, egs, SINGLE, device="cpu", precision=name) == End.DONE
    assert train(folder / "again", egs, SINGLE, device=device) == End.DONE
    take = Gradients.take

    def stop(self: Gradients, *args: Any, **step: Any) -> Any:
        if step["step"] == 14:
            os.kill(os.getpid(), signal.SIGTERM)
        return take(self, *args, **step)

    Gradients.take = stop  # type: ignore[method-assign]
    assert train(folder / "resumed", egs, SINGLE, device=device) == End.REQUEUE
    Gradients.take = take  # type: ignore[method-assign]
    assert train(folder / "resumed", egs, SINGLE, device=device) == End.DONE
    for kind in ("adpsgd", "hadpsgd", "ssgd"):
        virtual = run_of_kind(kind)
        assert train(folder / kind, egs, virtual, device=device, momentum=0.9) == End.DONE
        replay = ["replay", "--config", str(folder / kind / "config.yaml"), "--run-id", kind]
        assert main([*replay, "--egs", str(egs / "train")]) == 0


@pytest.fixture(scope="module")
def trained(device: str, egs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with all trainings of one process."""
    folder = tmp_path_factory.mktemp("alone")
    run(1, all_alone, folder, egs, device, seconds=150)
    return folder


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp64"])
def test_learns(precision: str, trained: Path) -> None:
    found = losses(trained / precision)
    assert len(found) == 3 and found[-1] < found[0]


@pytest.mark.parametrize("precision", SAME)
def test_both_devices_agree(precision: str, trained: Path) -> None:
    ours, theirs = losses(trained / precision), losses(trained / f"{precision}-processor")
    assert ours[0] == pytest.approx(theirs[0], rel=SAME[precision])


def test_the_same_bits_again(trained: Path) -> None:
    assert torch.equal(weights(trained / "fp32/out"), weights(trained / "again/out"))


def test_a_resumed_run_has_the_bits_of_an_unbroken_one(trained: Path) -> None:
    assert torch.equal(weights(trained / "fp32/out"), weights(trained / "resumed/out"))


@pytest.mark.parametrize("kind", ["adpsgd", "hadpsgd", "ssgd"])
def test_virtual_learners(kind: str, trained: Path) -> None:
    """Their replays had the same bits."""
    found = losses(trained / kind)
    assert found[-1] < found[0]


@pytest.fixture(scope="module")
def shared_gpu(device: str, egs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with trainings of four processes on one GPU."""
    folder = tmp_path_factory.mktemp("processes")
    settings: dict[str, Any] = {"device": device, "site": {"between_gpus": "host"}, "momentum": 0.9}
    # a gradient that is a round late bears a smaller step
    settings["learning_rate"] = {"base": 0.3, "base_batch": 40}
    started = {name: start(folder / name, egs, name, **settings) for name in PROCESSES}
    for name, processes in started.items():
        wrong = [o.error for o in collect(processes, 120).values() if o.error]
        (folder / name / "wrong").write_text("\n".join(wrong))
    return folder


@pytest.mark.parametrize("name", PROCESSES)
def test_processes_that_share_a_gpu(name: str, shared_gpu: Path, egs: Path, device: str) -> None:
    """They learn, and the record of what they did is replayed on the GPU to the same bits."""
    assert not (shared_gpu / name / "wrong").read_text()
    found = losses(shared_gpu / name)
    assert found[-1] < found[0] and learners(name) == 4
    assert json.loads((shared_gpu / name / "out/summary.json").read_text())["device"] == device
    if name != "ddp-4":
        assert run(1, replay_rank, shared_gpu / name / "config.yaml", name, egs / "train") == [0]


def waits(_: int, config: Path, egs: Path, out: Path, device: str) -> list[str]:
    """Calls in 4 steps, after 4 others, that wait for the GPU."""
    job = assemble(load(config), "single", egs=egs / "train", dev_egs=egs / "dev", out=out)
    work, meter = work_of(job, None), Meter(job.engine)
    told: list[str] = []

    def steps(count: int) -> None:
        for _ in range(count):
            piece = work.take()
            assert piece is not None and step(job, work, piece, 0.1, meter)
            work.finish(piece)

    def mode(name: str) -> None:
        if device == "cuda":
            torch.cuda.set_sync_debug_mode(name)

    with job.engine, work, warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        steps(4)
        mode("warn")
        seen.clear()
        steps(4)
        mode("default")
        told = [f"{w.filename}:{w.lineno}: {w.message}" for w in seen]
    return [line for line in told if "synchroniz" in line]


@pytest.fixture(scope="module")
def waited(device: str, egs: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """As `waits`."""
    folder = tmp_path_factory.mktemp("waits")
    config = write_config(folder, RUNS, device=device)
    [found] = run(1, waits, config, egs, folder / "out", device)
    assert isinstance(found, list)
    return found


def test_a_step_waits_once(waited: list[str]) -> None:
    """For the norm of the gradient, which decides whether it is applied."""
    assert len(waited) <= 4, "\n".join(waited)


def outputs(_rank: int, file: Path, device: str) -> list[torch.Tensor]:
    """Log posteriors of a whole utterance, on the device and on the processor."""
    torch.backends.cudnn.allow_tf32 = False
    x = torch.randn(500, 6, generator=torch.Generator().manual_seed(2))
    found = []
    for place in (device, "cpu"):
        model, _ = load_model(file, place)
        with torch.inference_mode():
            states = hidden(model, x.to(place))
            found.append(model.output(states).float().log_softmax(-1).cpu())
    return found


def test_posteriors(device: str, trained: Path) -> None:
    """A recogniser on a GPU hears what one on a processor does."""
    [(ours, theirs)] = run(1, outputs, trained / "fp32/out/final.pt", device)
    assert ours.shape == (500, 7) and float((ours - theirs).abs().max()) < 1e-4
