"""Who is there on a host: the ranks that take part, and those that are to come to others."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from hadpsgd.training.rank import Rank
from hadpsgd.training.vigil import Vigil

CRASHED = 1
"""Exit status of a rank that failed, however it did."""
SETTLE_SECONDS = 2.0
"""Who found bad input may end a little later than those who lost it, and is what counts."""


class Crew:
    """The ranks of one host.

    Args:
        size: ranks of a super-learner.
        vigil: watches them.
    """

    def __init__(self, size: int, vigil: Vigil) -> None:
        self.size = size
        self.vigil = vigil
        self.ranks: dict[int, Rank] = {}
        self.waiting: dict[int, Rank] = {}
        """Those that are to come to the first rank of their super-learner, which lacks others."""

    def running(self) -> list[Rank]:
        """Those that take part and have not ended."""
        return [rank for rank in self.ranks.values() if rank.code is None]

    def lives_on(self, number: int) -> bool:
        """Whether a rank's process runs."""
        return number in self.ranks and self.ranks[number].process.poll() is None

    def numbers(self, node: int) -> range:
        """Ranks of a super-learner."""
        return range(node * self.size, (node + 1) * self.size)

    def node(self, rank: Rank) -> int:
        """The super-learner of a rank."""
        return rank.number // self.size

    def colleagues(self, rank: Rank) -> list[Rank]:
        """The other ranks of its super-learner."""
        group = self.node(rank)
        return [r for n, r in self.ranks.items() if n // self.size == group and r is not rank]

    def waiting_of(self, node: int) -> list[Rank]:
        """Those that are to come to the first rank of a super-learner."""
        return [rank for n, rank in self.waiting.items() if n // self.size == node]

    def ended(self, rank: Rank, code: int) -> None:
        """It has ended: nothing is said to it, nobody watches it."""
        rank.code = code
        rank.closed()
        self.vigil.close(rank.watched)

    def dismiss(self, waiting: Sequence[Rank]) -> None:
        """They are of no use any more."""
        for rank in waiting:
            rank.process.kill()
            rank.process.wait()
            del self.waiting[rank.number]
            self.ended(rank, CRASHED)

    def end(self, rank: Rank) -> int:
        """End a rank that cannot go on; it may be about to say why. Its exit status."""
        try:
            status = rank.process.wait(SETTLE_SECONDS)
        except subprocess.TimeoutExpired:
            rank.process.kill()
            status = rank.process.wait()
        self.ended(rank, CRASHED)
        return status

    def kill(self) -> None:
        """All that run."""
        self.dismiss(list(self.waiting.values()))
        for rank in self.running():
            rank.process.kill()
            rank.process.wait()
            self.ended(rank, CRASHED)
