"""What a training job asks its scheduler for, in the names of Snakemake's Slurm executor."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hadpsgd.config.schema import Config
from hadpsgd.config.site import Shape, shape
from hadpsgd.config.stages import settings_of

SIGNALS = "--signal=USR1@120 --no-kill"
"""sbatch's options of a training job: two minutes before its time is up it stops at a checkpoint
and goes back into the queue; when a host fails, the learners on the others go on."""


def shape_of(config: Config, run_id: str) -> Shape:
    """How a run's learners are laid over hosts.

    Raises:
        UserError: the config has no such run.
    """
    settings = settings_of(config, run_id)
    return shape(config.site, settings.run.processes, settings.training.device)


def request_of(config: Config, run_id: str, attempt: int = 1) -> dict[str, int | str | None]:
    """Resources of a training job; None asks for nothing.

    Slurm counts one task on each host, which starts that host's learners. `gres` counts GPUs by
    host (`gpu` would count them over all hosts, and Slurm might lay them out unevenly). The
    executor starts a job with the key `mpi` once, on its first host, and leaves the rest to us;
    on one host, where it takes no `mpi` job, an empty string does the same.
    """
    site, laid = config.site, shape_of(config, run_id)
    return {
        "nodes": laid.nodes,
        "tasks": laid.nodes,
        "mpi": "srun" if laid.nodes > 1 else "",
        "cpus_per_task": laid.per_node * laid.cpus,
        "gres": laid.gres or None,
        "slurm_extra": SIGNALS,
        "tasks_per_gpu": 0 if laid.gpus else None,
        "mem_mb": attempt * site.memory_mb * laid.per_node,
        "runtime": math.ceil(60 * site.hours),
    }


def one_gpu(config: Config) -> str | None:
    """`gres` of a job that runs a network without training it."""
    return shape(config.site, 1, config.decoding.device).gres or None


def neural_gpus(config: Config) -> str | None:
    """`gres` of the job that trains the neural language model."""
    neural = config.lm.neural
    if neural is None:
        return None
    one = shape(config.site, 1, neural.device)
    return replace(one, gpus=one.gpus * neural.learners).gres or None


def asked(config: Config, what: str) -> Callable[..., int | str | None]:
    """One of the resources of a training job, as a rule's function of its wildcards."""

    def value(wildcards: Any, attempt: int = 1) -> int | str | None:
        return request_of(config, wildcards.run, attempt)[what]

    return value
