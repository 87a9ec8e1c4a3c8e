"""What a training run asks the cluster for."""

from __future__ import annotations

from typing import Any

import pytest

from hadpsgd.config import check, request_of
from hadpsgd.decentralized.core.place import share_of_cores
from hadpsgd.errors import UserError


def settings(runs: list[dict[str, Any]], site: dict[str, Any], **training: Any) -> Any:
    return check(
        {
            "name": "x",
            "corpus": {"kind": "builtin"},
            "training": {"batch": 256, "runs": runs, **training},
            "site": site,
        },
        "test",
    )


SIXTY_FOUR = {"strategy": "hadpsgd", "learners": 64, "super_learner": 8}
GPUS = {"learners_per_node": 8, "cpus": 4, "memory_mb": 16000}


def test_request_of_many_gpus() -> None:
    config = settings([SIXTY_FOUR], GPUS, device="cuda")
    wanted = {"nodes": 8, "tasks": 8, "mpi": "srun", "cpus_per_task": 32, "gres": "gpu:8"}
    wanted |= {"tasks_per_gpu": 0, "mem_mb": 128000, "runtime": 1440}
    wanted |= {"slurm_extra": "--signal=USR1@120 --no-kill"}  # time for a checkpoint
    assert request_of(config, config.training.runs[0].id) == wanted
    assert request_of(config, config.training.runs[0].id, 2)["mem_mb"] == 256000


def test_request_of_one_learner_and_of_a_type_of_gpu() -> None:
    site = {**GPUS, "gpu_type": "a100", "hours": 1.5}
    config = settings([{"strategy": "single"}], site, device="cuda")
    request = request_of(config, "single")
    assert request["nodes"] == request["tasks"] == 1
    assert request["mpi"] == ""  # the executor starts the script without srun
    assert request["gres"] == "gpu:a100:1"
    assert request["runtime"] == 90


@pytest.mark.parametrize(
    ("device", "gpus"), [("cpu", "auto"), ("auto", "auto"), ("cuda", "none"), ("cpu", "each")]
)
def test_no_gpu_is_asked_for_unasked(device: str, gpus: str) -> None:
    config = settings([SIXTY_FOUR], {**GPUS, "gpus": gpus}, device=device)
    request = request_of(config, config.training.runs[0].id)
    assert request["gres"] is request["tasks_per_gpu"] is None


def test_learners_that_cannot_be_laid_out_are_refused() -> None:
    with pytest.raises(UserError, match="6 learners cannot be laid out 4 to a host"):
        settings([{"strategy": "adpsgd", "learners": 6}], {"learners_per_node": 4}, batch=60)


@pytest.mark.parametrize(("processes", "threads"), [(1, 8), (2, 4), (3, 2), (8, 1), (9, 1)])
def test_learners_share_the_cores(
    processes: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    assert share_of_cores(processes) == threads
