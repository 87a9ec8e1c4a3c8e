"""Numbers of blocks and who owns them, in a store that all learners share.

`claim/<index>` names the owner, and changes by `compare_set` alone. An offer names the owner that
it takes the block from, so of all who want it, and however often it is offered, one gets it.
"""

from __future__ import annotations

from collections.abc import Iterator

from hadpsgd.decentralized.core.stores import Store

LOST = "lost"
"""Owner of a block whose claimer died before it could say so, or gave it back."""


class Owners:
    """One learner's view."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._offers: list[int] = []
        self._seen_offers = 0

    @property
    def numbers(self) -> int:
        """How many were taken so far; may be more than there are blocks."""
        return self.store.add("next", 0)

    def take_number(self) -> int:
        """One that nobody else takes."""
        return self.store.add("next", 1) - 1

    def of(self, index: int) -> str:
        """Who owns it; "" if nobody does."""
        key = _claim(index)
        return self.store.get(key).decode() if self.store.check([key]) else ""

    def change(self, index: int, old: str, new: str) -> str:
        """If it was `old`'s ("": nobody's) it is `new`'s; whose it is now."""
        return self.store.compare_set(_claim(index), old, new).decode()

    def let_go(self, index: int, owner: str) -> None:
        """It is anybody's, if it was `owner`'s until now."""
        if self.change(index, owner, LOST) == LOST:
            self.offer(index, LOST)

    def offer(self, index: int, owner: str) -> None:
        """To all: to own it instead of `owner`."""
        number = self.store.add("offers", 1) - 1
        self.store.set(f"offer/{number}", f"{index} {owner}")

    def offered(self) -> Iterator[tuple[int, str]]:
        """(index, owner) of what is offered, each once."""
        count = self.store.add("offers", 0)
        self._offers += range(self._seen_offers, count)
        self._seen_offers = count
        for number in list(self._offers):
            key = f"offer/{number}"
            if self.store.check([key]):  # if not, it is about to be written
                self._offers.remove(number)
                index, owner = self.store.get(key).decode().split()
                yield int(index), owner

    def remove(self, index: int) -> None:
        """Nobody will look at it any more."""
        self.store.delete_key(_claim(index))


def _claim(index: int) -> str:
    return f"claim/{index}"
