"""Which blocks of the shared work are still to be done."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Left:
    """The blocks that are still to be done, in their order."""

    total: int
    """Blocks of the whole run: 0 to total - 1."""
    frontier: int = 0
    """No block from here on is done."""
    holes: tuple[int, ...] = ()
    """Blocks before it that are not done, ascending."""

    def __len__(self) -> int:
        return len(self.holes) + self.total - self.frontier

    def __contains__(self, block: object) -> bool:
        return isinstance(block, int) and (block >= self.frontier or block in self.holes)

    def block(self, index: int) -> int:
        """The block of that place in the order."""
        at = index - len(self.holes)
        return self.holes[index] if at < 0 else self.frontier + at

    @classmethod
    def after(cls, done: Iterable[int], total: int) -> Left:
        """What is left when these blocks are done."""
        found = np.fromiter(done, dtype=np.int64)
        frontier = int(found.max(initial=-1)) + 1
        undone = np.ones(frontier, dtype=bool)
        undone[found] = False
        return cls(total=total, frontier=frontier, holes=tuple(np.flatnonzero(undone).tolist()))

    def to_json(self) -> str:
        """For a store."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Left:
        """Inverse of `to_json`."""
        content = json.loads(text)
        return cls(**{**content, "holes": tuple(content["holes"])})
