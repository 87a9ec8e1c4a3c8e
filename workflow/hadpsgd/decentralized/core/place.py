"""Where a process stands: its rank, its super-learner, its counterparts in the others.

Ranks are counted through the super-learners: rank = super-learner * size + member. The nodes of a
mixing schedule are super-learners; with size 1 they are learners.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Place:
    """One rank among `world` ranks, `size` of them in each super-learner."""

    rank: int = 0
    world: int = 1
    size: int = 1

    def __post_init__(self) -> None:
        if self.world % self.size:
            raise ValueError(f"{self.world} ranks are no super-learners of {self.size}")
        if not 0 <= self.rank < self.world:
            raise ValueError(f"rank {self.rank} of {self.world}")

    @property
    def nodes(self) -> int:
        """Number of super-learners."""
        return self.world // self.size

    @property
    def node(self) -> int:
        """This rank's super-learner."""
        return self.rank // self.size

    @property
    def member(self) -> int:
        """This rank's number inside its super-learner; also the shard that it exchanges."""
        return self.rank % self.size

    @property
    def others(self) -> list[int]:
        """The ranks of the other members of its super-learner."""
        first = self.node * self.size
        return [rank for rank in range(first, first + self.size) if rank != self.rank]

    def counterpart(self, node: int) -> int:
        """The rank that holds the same shard in another super-learner."""
        return node * self.size + self.member

    def __str__(self) -> str:
        if self.size == 1:
            return f"learner {self.rank}"
        return f"learner {self.rank} (member {self.member} of super-learner {self.node})"


def ranks_of(node: int, *, size: int, reduced: Collection[int]) -> range:
    """Ranks of a super-learner that take part; of a reduced one its first."""
    first = node * size
    return range(first, first + (1 if node in reduced else size))


def share_of_cores(processes: int) -> int:
    """Threads of one of so many processes on this host: more than cores would be far slower."""
    known = hasattr(os, "sched_getaffinity")  # Linux
    cores = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
    return max(1, cores // processes)
