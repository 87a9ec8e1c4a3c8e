"""Which claims can be removed, and where lost ones are looked for: numbers in parts.

A number without a claim was never claimed, or its claim was removed. The two are told apart by
parts of `PART` numbers. Who has taken a number, claimed it, and told that its block is done, counts
it. A part is *settled* when all its numbers are counted: none is lost, nobody will claim one late,
and its claims are removed. Of other parts no claim is ever removed, and a number without a claim
was never claimed. A part in which a number was lost is never settled, and keeps its claims.
"""

from __future__ import annotations

from hadpsgd.decentralized.core.claims import Owners
from hadpsgd.decentralized.core.stores import Store

PART = 64
"""Numbers."""
FLOOR = "floor"


class Parts:
    """One learner's view.

    Args:
        store: shared by all.
        owners: of the numbers.
        total: numbers that count.
    """

    def __init__(self, store: Store, owners: Owners, *, total: int) -> None:
        self.store = store
        self.owners = owners
        self.total = total

    def count(self, part: int, *, numbers: int) -> bool:
        """So many more were claimed by those who took them, and done; whether it is settled."""
        return self.store.add(f"settled/{part}", numbers) == len(self._numbers(part))

    def settled(self, index: int) -> bool:
        """Whether its part is: then a claim that is there was made too late."""
        return self.count(part_of(index), numbers=0)

    def advance(self) -> int:
        """The first part in which a number may have no claim, and never have had one."""
        floor = self.store.add(FLOOR, 0)
        while floor * PART < self.total:
            # asked for last: the claims may have been removed a moment ago
            if not (self.owners.all_claimed(self._numbers(floor)) or self.count(floor, numbers=0)):
                break
            floor = int(self.store.compare_set(FLOOR, str(floor), str(floor + 1)))
        return floor

    def lost(self, *, until: int) -> list[int]:
        """Numbers below this that nobody has claimed, or not yet."""
        found: list[int] = []
        for part in range(self.store.add(FLOOR, 0), -(-min(until, self.total) // PART)):
            numbers = self._numbers(part)
            missing = self.owners.without_claim(numbers[: max(0, until - numbers.start)])
            if missing and not self.count(part, numbers=0):
                found += missing
        return found

    def _numbers(self, part: int) -> range:
        return range(part * PART, min(end_of(part), self.total))


def part_of(index: int) -> int:
    """The part that a number is in."""
    return index // PART


def end_of(part: int) -> int:
    """The first number behind it."""
    return (part + 1) * PART
