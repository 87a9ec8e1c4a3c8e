"""Numbers of blocks and who owns them, in a store that all learners share.

`claim/<index>` names the owner, and changes by `compare_set` alone. A block that is anybody's has
a token there that never was there before: who is late, and would take it from a former owner or
token, does not get it.

Offers say where to look, not from whom: of all who want a block, and however often it is offered,
one gets it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hadpsgd.decentralized.core.stores import Store

LOST = "lost"
"""Beginning of the tokens."""
NOTHING = "?"
"""Never in a claim."""


class Owners:
    """One process's view; `me` is what it is called, as no other process ever is."""

    def __init__(self, store: Store, me: str) -> None:
        self.store = store
        self.me = me
        self._tokens = 0
        self._offers: list[int] = []
        self._seen_offers = 0

    @property
    def numbers(self) -> int:
        """How many were taken so far; may be more than there are blocks."""
        return self.store.add("next", 0)

    def take_numbers(self, count: int) -> range:
        """So many that nobody else takes."""
        end = self.store.add("next", count)
        return range(end - count, end)

    def of(self, index: int) -> str:
        """Who owns it, or a token; "" if there is no claim."""
        found = self.store.compare_set(_claim(index), NOTHING, NOTHING).decode()
        return "" if found == NOTHING else found

    def claim(self, index: int) -> bool:
        """Own it, if it has no claim; whether that worked."""
        return self._put(index, "", self.me)

    def take_over(self, index: int) -> bool:
        """Own it, if nobody does; whether that worked."""
        return self._replace(index, self.me, holder="")

    def free(self, index: int, holder: str) -> bool:
        """With a new token it is anybody's, unless someone but `holder` owns it; whether it is."""
        self._tokens += 1
        return self._replace(index, f"{LOST} {self.me} {self._tokens}", holder=holder)

    def offer(self, index: int) -> None:
        """To all: to take it, if nobody owns it."""
        number = self.store.add("offers", 1) - 1
        self.store.set(f"offer/{number}", str(index))

    def offered(self) -> Iterator[int]:
        """What is offered, each offer once."""
        count = self.store.add("offers", 0)
        self._offers += range(self._seen_offers, count)
        self._seen_offers = count
        for number in list(self._offers):
            key = f"offer/{number}"
            if self.store.check([key]):  # if not, it is about to be written
                self._offers.remove(number)
                yield int(self.store.get(key))

    def all_claimed(self, indices: Sequence[int]) -> bool:
        """Whether each of them has a claim."""
        return self.store.check([_claim(index) for index in indices])

    def without_claim(self, indices: Sequence[int]) -> list[int]:
        """Those that have no claim, found by halves."""
        if not indices or self.all_claimed(indices):
            return []
        if len(indices) == 1:
            return list(indices)
        half = len(indices) // 2
        return self.without_claim(indices[:half]) + self.without_claim(indices[half:])

    def remove(self, index: int) -> None:
        """Nobody will look at it any more."""
        self.store.delete_key(_claim(index))

    def _replace(self, index: int, new: str, *, holder: str) -> bool:
        while is_free(found := self.of(index)) or found == holder:
            if self._put(index, found, new):
                return True
        return False

    def _put(self, index: int, found: str, new: str) -> bool:
        return self.store.compare_set(_claim(index), found, new).decode() == new


def is_free(found: str) -> bool:
    """Whether what is in a claim makes the block anybody's; "", too."""
    return not found or found.startswith(LOST)


def _claim(index: int) -> str:
    return f"claim/{index}"
