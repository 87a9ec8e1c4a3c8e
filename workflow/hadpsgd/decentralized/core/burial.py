"""What the dead claimed and did not do goes back; who was taken for dead gets nothing more.

In two steps, each of which others can do, too, or go on with where the first one died:

1. Words in place of the dead one's last say that it is buried. It can tell nothing any more, so it
   claims nothing but what it has told of.
2. Each block that it held then gets a new token, unless another one owns it by now, and is
   offered. So what the dead one may still do about it, should it go on, fails. Then the words say
   that it holds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from hadpsgd.decentralized.core.claims import Owners
from hadpsgd.decentralized.core.left import Left
from hadpsgd.decentralized.core.settled import Parts
from hadpsgd.decentralized.core.words import State, Words, owner_of

Used = Callable[[int, int], Collection[int]]


@dataclass(frozen=True, kw_only=True)
class Burial:
    """As one process does it."""

    words: Words
    owners: Owners
    parts: Parts
    left: Left
    used: Used | None
    """As of `Ledger`."""

    def bury(self, learner: int, *, until: int) -> None:
        """A learner's processes up to generation `until` are dead: offer what they left undone."""

        def buried(said: State | None) -> State | None:
            if said is None:
                return State(generation=until, done=0, buried=True)
            if said.generation > until or (said.buried and said.generation == until):
                return None
            me = owner_of(learner, generation=said.generation)
            holder = said.holder if said.buried else me
            return replace(said, generation=until, buried=True, holder=holder)

        def over(said: State | None) -> State | None:
            if said is None or not said.holder:
                return None
            return self._hand_on(learner, said)

        for step in (buried, over):
            while not self.words.replace(learner, step):
                pass  # it has said something meanwhile, or others did this

    def offer_lost(self, *, until: int) -> None:
        """Offer the numbers below this that somebody took and did not claim."""
        for index in self.parts.lost(until=until):
            self.owners.offer(index)

    def _hand_on(self, learner: int, said: State) -> State:
        used = self.used(learner, said.generation) if self.used is not None else None
        for index in said.held:
            undone = used is None or self.left.block(index) not in used
            # of a settled part it was done, and its claim removed
            if undone and self.owners.free(index, said.holder) and not self.parts.settled(index):
                self.owners.offer(index)
        self.offer_lost(until=self.owners.numbers)
        done = said.done if used is None else sum(block in self.left for block in used)
        return replace(said, done=done, held=(), holder="")
