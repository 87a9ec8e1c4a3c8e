"""A learner's old claims: counted, so that parts are settled, and removed from the store."""

from __future__ import annotations

from hadpsgd.decentralized.core.burial import Burial
from hadpsgd.decentralized.core.claims import Owners
from hadpsgd.decentralized.core.settled import Parts, end_of, part_of

TIDY_EVERY = 64
"""Claims after which a learner looks at its old ones, at least."""


class Tidying:
    """Of one learner; the calls come from one thread."""

    def __init__(self, owners: Owners, parts: Parts, burial: Burial) -> None:
        self.owners = owners
        self.parts = parts
        self.burial = burial
        self._told: dict[int, list[int]] = {}  # part -> numbers that are not counted yet
        self._counted: dict[int, list[int]] = {}
        self._old: list[int] = []  # of settled parts
        self._floor = 0

    def told(self, numbers: list[int]) -> None:
        """It took them, and the others know that their blocks are done."""
        for index in numbers:
            self._told.setdefault(part_of(index), []).append(index)

    @property
    def due(self) -> bool:
        """Whether to look: again when there are as many more as could not be removed."""
        new, kept = (sum(map(len, of.values())) for of in (self._told, self._counted))
        return new >= max(TIDY_EVERY, kept)

    def whole(self) -> None:
        """Count all, remove what can be removed; help where a number is in the way.

        Where the first part stays as it is, one that took a number was buried.
        """
        self.count()
        for part in list(self._counted):
            if self.parts.count(part, numbers=0):
                self._old += self._counted.pop(part)
        while self._old:
            self.owners.remove(self._old.pop())
        floor, self._floor = self._floor, self.parts.advance()
        if floor == self._floor and self.owners.numbers >= end_of(floor + 1):
            self.burial.offer_lost(until=end_of(floor))

    def count(self) -> None:
        """All that were told."""
        while self._told:
            self._count(min(self._told))

    def some(self) -> bool:
        """One call of the store, over a slow link; whether there was anything to do."""
        if len(self._told) > 1:  # more numbers of the last part may come
            self._count(min(self._told))
        elif self._old:
            self.owners.remove(self._old.pop())
        else:
            return False
        return True

    def _count(self, part: int) -> None:
        numbers = self._told.pop(part)
        settled = self.parts.count(part, numbers=len(numbers))
        numbers += self._counted.pop(part, [])
        if settled:
            self._old += numbers
        else:
            self._counted[part] = numbers
