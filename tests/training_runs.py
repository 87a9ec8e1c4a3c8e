"""Training runs of a tiny task, all strategies, as `hadpsgd train` runs them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # DDP would import it in every process, for seconds
from processes import Process, collect, launch
from training_data import write_config, write_egs

from hadpsgd.config import load
from hadpsgd.models.build import load_model
from hadpsgd.training import final
from hadpsgd.training.end import End
from hadpsgd.training.job import Job, assemble
from hadpsgd.training.loop import train

RUNS: list[dict[str, Any]] = [
    {"strategy": "single"},
    {"strategy": "ssgd", "learners": 4},
    {"strategy": "ddp", "learners": 4},
    {"strategy": "dpsgd", "learners": 4},
    {"strategy": "adpsgd", "learners": 4},
    {"strategy": "rand", "learners": 4},
    {"strategy": "d1d", "learners": 4},
    {"strategy": "local", "learners": 4, "synchronous_epochs": 1, "average_every": 3},
    {"strategy": "diloco", "learners": 4, "average_every": 3},
    {"strategy": "noloco", "learners": 4, "average_every": 3},
    {"strategy": "sgp", "learners": 4, "injected": {"drop": 0.3}},
    {"strategy": "hadpsgd", "learners": 4, "super_learner": 2},
    {"strategy": "hadpsgd", "learners": 4, "super_learner": 2, "among": "dpsgd"},
    {"strategy": "adpsgd", "learners": 4, "schedule": "random-partner"},
    {"strategy": "hadpsgd", "learners": 4, "super_learner": 2, "wire": "int8"},
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
    "diloco-4",
    "noloco-4",
    "sgp-4",
    "hadpsgd-2x2",
    "hadpsgd-2x2-dpsgd",
    "adpsgd-4-random-partner",
    "hadpsgd-2x2-int8",
]
SYNCHRONOUS = [
    "single",
    "ssgd-4",
    "dpsgd-4",
    "d1d-4",
    "local-4",
    "diloco-4",
    "noloco-4",
    "sgp-4",
    "hadpsgd-2x2-dpsgd",
    "ddp-4",
]


def learners(run_id: str) -> int:
    """Processes of a run."""
    return next(int(r.get("learners", 1)) for r, i in zip(RUNS, IDS, strict=True) if i == run_id)


def rank_of_run(_: int, config: Path, run_id: str, egs: Path, out: Path, pause: float = 0) -> int:
    """What one process of `hadpsgd train` does; `pause` seconds after each step."""
    job = assemble(load(config), run_id, egs=egs / "train", dev_egs=egs / "dev", out=out)
    if pause:
        slow_down(job, pause)
    end = train(job)
    if end is End.DONE and job.meeting.place.rank == 0:
        final.write(job, 1.0, final.measure(job))
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
    deadline = time.monotonic() + 180
    while not (file.exists() and file.stat().st_size):
        assert time.monotonic() < deadline, f"{file}: no row"
        time.sleep(0.01)


def finish(folder: Path, egs: Path, run_id: str, **training: Any) -> torch.Tensor:
    """Run to the end; the final model's weights."""
    outcomes = collect(start(folder, egs, run_id, **training), 240)
    assert not [o.error for o in outcomes.values() if o.error], outcomes
    return weights(folder / "out")


def weights(out: Path) -> torch.Tensor:
    """Of final.pt."""
    model, _ = load_model(out / "final.pt")
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()


def write_examples(folder: Path) -> Path:
    """Examples to train on and held-out ones."""
    write_egs(folder / "train", 400, 1)
    write_egs(folder / "dev", 100, 2)
    return folder
