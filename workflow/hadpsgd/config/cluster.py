"""Training on a cluster: how a run's learners are laid over hosts, and what they ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from hadpsgd.config.base import Section

LostLearner = Literal["continue", "replace", "stop"]


class Cluster(Section):
    """What a scheduler is asked for; on one host only `cpus` and `lost_learner` matter.

    None of it decides the weights, so a run may go on with other values.
    """

    learners_per_node: int = Field(0, ge=0)
    """Learners on a host: its number of GPUs, as a rule. 0 puts all learners of a run on one."""
    cpus: int = Field(1, ge=1)
    """CPU cores of a learner."""
    memory_mb: int = Field(2000, ge=1)
    """Memory of a learner in MB, at the first attempt; the next ones ask for more."""
    gpus: Literal["auto", "none"] = "auto"
    """auto asks for one GPU for each learner where training.device is cuda."""
    between_gpus: Literal["nccl", "host"] = "nccl"
    """How gradients and averages of all weights go between GPUs: NCCL, which wants one for each
    learner, or by the hosts' memory and gloo, which learners of one GPU can use. What a
    super-learner mixes goes by the hosts' memory in any case."""
    gpu_type: str = Field("", pattern=r"^[A-Za-z0-9_.]*$")
    """Type of the GPUs, as the cluster calls it (`a100`); any where it is empty."""
    hours: float = Field(24.0, gt=0)
    """Time limit of a training job; one that needs longer is requeued and goes on."""
    lost_learner: LostLearner = "replace"
    """When a learner dies: a new process joins the others, which go on (replace); the others go
    on without it (continue); or the job fails, to be tried again (stop). Where the strategy cannot
    go on without one (all but adpsgd and rand), replace and continue start all learners again
    from the last checkpoint. A host that dies takes its learners with it: with replace and
    continue the other hosts go on."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A run laid over hosts."""

    nodes: int
    """Hosts."""
    per_node: int
    """Learners on each."""
    cpus: int
    """CPU cores of a learner."""
    gpus: int
    """GPUs on each host."""
    gpu_type: str = ""

    @property
    def gres(self) -> str:
        """The GPUs of a host as Slurm's generic resources, or an empty string."""
        return ":".join(filter(None, ("gpu", self.gpu_type, str(self.gpus)))) if self.gpus else ""


def shape(settings: Cluster, learners: int, device: str) -> Shape:
    """Lay learners over hosts, equally many on each.

    Raises:
        ValueError: they cannot be laid out so.
    """
    per_node = min(settings.learners_per_node or learners, learners)
    if learners % per_node:
        raise ValueError(
            f"{learners} learners cannot be laid out {per_node} to a host: "
            "training.cluster.learners_per_node must divide them"
        )
    gpus = per_node if device == "cuda" and settings.gpus == "auto" else 0
    return Shape(
        nodes=learners // per_node,
        per_node=per_node,
        cpus=settings.cpus,
        gpus=gpus,
        gpu_type=settings.gpu_type,
    )
