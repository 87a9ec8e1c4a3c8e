"""What a training job asks its scheduler for, in the names of Snakemake's Slurm executor."""

from __future__ import annotations

import math

from hadpsgd.config.cluster import Shape, shape
from hadpsgd.config.schema import Config
from hadpsgd.config.stages import run_of


def shape_of(config: Config, run_id: str) -> Shape:
    """How a run's learners are laid over hosts.

    Raises:
        UserError: the config has no such run.
    """
    training = config.training
    return shape(training.cluster, run_of(config, run_id).learners, training.device)


def request_of(config: Config, run_id: str, attempt: int = 1) -> dict[str, int | str | None]:
    """Resources of a training job; None asks for nothing.

    `gres` counts GPUs by host (`gpu` would count them over all hosts, and Slurm might lay them
    out unevenly). The executor starts a job with `mpi` once, on its first host, and leaves the
    rest to us; with one learner, for which it takes no `mpi`, an empty string does the same.
    Tasks are counted by host where it allows that (`tasks=4` on 2 hosts was laid out 3 and 1).
    """
    cluster, laid = config.training.cluster, shape_of(config, run_id)
    several = laid.per_node > 1
    return {
        "nodes": laid.nodes,
        "mpi": "srun" if several or laid.nodes > 1 else "",
        "tasks_per_node": laid.per_node if several else None,
        "tasks": None if several else laid.nodes,
        "cpus_per_task": laid.cpus,
        "gres": laid.gres or None,
        "tasks_per_gpu": 0 if laid.gpus else None,
        "mem_mb": attempt * cluster.memory_mb * laid.per_node,
        "runtime": math.ceil(60 * cluster.hours),
    }
