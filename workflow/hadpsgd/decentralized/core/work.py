"""Who does which block of the work: claims in a store that all learners share.

A *block* is a number; what lies behind it (a minibatch) is the caller's matter. Whoever is free
claims the next one, each block is done once, and what a dead learner claimed and did not do goes
back. No learner asks another, and none serves the others: the store arbitrates by `add` and
`compare_set` alone.

A learner tells what it is about to claim (`words`) before it does (`claims`), so what a dead one
owned is known from its last words. Between taking a number (`add`) and telling of it a death leaves
a number that nobody owns: whoever buries the dead finds it, marks it lost and offers it. Who was
buried may only have stood still, and go on: when it tells of the next block it finds out, and what
it took without being able to say so, it offers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection

from hadpsgd.decentralized.core.claims import LOST, Owners
from hadpsgd.decentralized.core.engine import ExcludedError
from hadpsgd.decentralized.core.left import Left
from hadpsgd.decentralized.core.pace import Pace
from hadpsgd.decentralized.core.stores import Store
from hadpsgd.decentralized.core.words import State, Words, owner_of

OFFERS_EVERY = 8
"""Claims of which one begins with a look at what the dead left; where nothing else is left, all do.
Each look takes a round trip, and over a slow link a round trip may take as long as a gradient."""
TIDY_EVERY = 64
"""Claims after which a learner removes its old ones from the store, at least."""


class Ledger:
    """One learner's claims; but for `finish` the calls come from one thread.

    Args:
        store: shared by all learners; outlives them.
        left: what is to be done; the same at all learners.
        learner: this one.
        learners: how many there are.
        generation: larger than that of any process that was this learner before.
        used: blocks that a learner's processes up to a generation, which are dead, have done: for
            good, whatever they do when they were not dead after all; without, its own last words
            count.
        durable: makes what this learner has done outlive its death; called before it is told.
        now: tells the time, in seconds.
        pace: this learner's, where it has worked with the others on something before.
        first: blocks that there were before.
    """

    def __init__(
        self,
        store: Store,
        left: Left,
        *,
        learner: int,
        learners: int,
        generation: int = 0,
        used: Callable[[int, int], Collection[int]] | None = None,
        durable: Callable[[], object] = lambda: None,
        now: Callable[[], float] = time.monotonic,
        pace: Pace | None = None,
        first: int = 0,
    ) -> None:
        self.left = left
        self.learner = learner
        self.learners = learners
        self.generation = generation
        self.used = used
        self.durable = durable
        self._me = owner_of(learner, generation=generation)
        self._words = Words(store, learner=learner, learners=learners)
        self._owners = Owners(store)
        self._lock = threading.Lock()
        self._held: dict[int, int] = {}  # block -> its place
        self._numbers: set[int] = set()  # of these, those taken by `add` and not offered
        self._done = 0
        self._next = 0
        self._exhausted = False
        self._old: list[int] = []
        self._tidy_at = TIDY_EVERY
        self._begun = False
        self._stuck = False
        self._claims = 0
        self._owned: set[int] = set()  # places of all blocks that were ever this process's
        self._pace = pace or Pace(learners, now)
        self._first = first

    def begin(self) -> None:
        """Before the first claim: bury this learner's former selves, and be known.

        Raises:
            ExcludedError: another process is this learner now.
        """
        self._begun = True
        while True:  # others may bury former selves meanwhile
            if self.generation:
                self.bury(self.learner, until=self.generation - 1)
                self._next = min(self._owners.numbers, len(self.left))
            former = self._words.former()
            if former is not None and former.generation + former.buried > self.generation:
                raise self._excluded()
            self._done = former.done if former else 0
            if self._say(anew=True):
                return

    def claim(self) -> int | None:
        """A block for this learner alone; None: there is none now, or others are sooner done.

        So near the end that the others will have done all that is left before a slow learner has
        done one block more, it leaves them to the others, for as long as it would need itself.
        """
        if not self._begun:
            self.begin()
        total, held = self._first + len(self.left), len(self._held)
        if self._pace.asks(total=total, held=held):
            taken = self._first + self._owners.numbers
            if self._pace.leaves(taken=taken, total=total, held=held):
                return None
        self._claims += 1
        if self._claims % OFFERS_EVERY:
            block = self._fresh()
            return self._given_back() if block is None else block
        block = self._given_back()
        return self._fresh() if block is None else block

    @property
    def paced(self) -> bool:
        """Whether a block more may be claimed ahead: how slow this learner is is known."""
        return self._pace.known or not self._held

    def finish(self, block: int) -> None:
        """It is done; told with the next claim."""
        with self._lock:
            index = self._held.pop(block)
            self._numbers.discard(index)
            self._old.append(index)
            self._done += 1

    def tell(self, *, anew: bool = False) -> None:
        """Let the others know what is done and what is held; `anew` as in `Words.say`.

        Raises:
            ExcludedError: the others go on without this process.
        """
        if not self._say(anew=anew):
            raise self._excluded()
        if len(self._old) >= self._tidy_at:
            self.tidy()

    def _say(self, *, anew: bool) -> bool:
        """Whether nobody wrote in its place since it said something last."""
        with self._lock:
            done, held = self._done, tuple(sorted(self._held.values()))
            low = min(self._numbers, default=self._next)
        self.durable()
        state = State(generation=self.generation, done=done, low=low, held=held)
        return self._words.say(state, anew=anew)

    def _excluded(self) -> ExcludedError:
        return ExcludedError(
            f"the others took (super-)learner {self.learner} for dead and go on without"
        )

    def give_back(self) -> None:
        """What is claimed and not finished is anybody's; this learner may claim it again."""
        for block, index in sorted(self._held.items()):
            self._owners.let_go(index, self._me)
            with self._lock:
                del self._held[block]
                self._numbers.discard(index)
            self._owned.discard(index)
        self.tell()

    def leave(self) -> None:
        """All is done: take no number any more."""
        with self._lock:
            self._next = len(self.left)
        self.tell()
        self.tidy()

    def look_for_end(self) -> bool:
        """Whether every block is done, by whomever.

        If not, and nobody has one, look for numbers that were lost.

        One that was buried may have gone on, taken a number and died before it could offer it.
        """
        states = self._words.all()
        if sum(state.done for state in states if state) == len(self.left):
            return True
        stuck = not any(state.held for state in states if state)
        if stuck and self._stuck:  # twice in a row: nobody is about to take what was offered
            self._find_lost()
        self._stuck = stuck
        return False

    def bury(self, learner: int, *, until: int) -> None:
        """A learner's processes up to generation `until` are dead: offer what they left undone.

        Does no harm if others do so too, or did and died half-way, nor if one of the dead goes on.
        """
        while not self._words.replace(learner, lambda said: self._bury(learner, until, said)):
            pass  # it has said something meanwhile

    def _bury(self, learner: int, until: int, said: State | None) -> State | None:
        """What is to be said of it instead; None: it is buried already, or lives."""
        state = said or State(generation=until, done=0, low=0)
        if state.generation > until or state.buried:
            return None
        owner = owner_of(learner, generation=state.generation)
        used = self.used(learner, until) if said and self.used is not None else None
        for index in state.held:
            if used is None or self.left.block(index) not in used:
                found = self._owners.of(index) or self._lose(index)
                if found in (owner, LOST):
                    self._owners.offer(index, found)
        self._find_lost()
        return State(
            generation=until,
            done=state.done if used is None else sum(block in self.left for block in used),
            low=len(self.left),
            buried=True,
        )

    def _fresh(self) -> int | None:
        """A block that nobody has had."""
        while not self._exhausted:
            index = self._owners.take_number()
            self._exhausted = index >= len(self.left)
            if not self._exhausted and self._take(index, ""):
                self._pace.claimed(self._first + index)
                return self.left.block(index)
        return None

    def _given_back(self) -> int | None:
        """A block of one that died."""
        for index, owner in self._owners.offered():
            if self._take(index, owner):
                return self.left.block(index)
        return None

    def _take(self, index: int, owner: str) -> bool:
        """Become the owner instead of `owner`; whether that worked.

        Raises:
            ExcludedError: the others go on without this process; they can have the block.
        """
        if index in self._owned:  # offered twice, and had the first time
            return False
        block = self.left.block(index)
        with self._lock:
            self._held[block] = index
            if not owner:
                self._numbers.add(index)
                self._next = index + 1
        try:
            self.tell(anew=True)
        except ExcludedError:
            self._owners.let_go(index, owner)
            raise
        won = self._owners.change(index, owner, self._me) == self._me
        if won and owner and not self._words.stand():  # buried before it won
            self._owners.let_go(index, self._me)
            raise self._excluded()
        if won:
            self._owned.add(index)
        else:
            with self._lock:
                del self._held[block]
                self._numbers.discard(index)
        return won

    def _find_lost(self) -> None:
        """Offer the numbers that somebody took and died before it told of them."""
        for index in range(self._words.low(), min(self._owners.numbers, len(self.left))):
            if self._lose(index) == LOST:
                self._owners.offer(index, LOST)

    def _lose(self, index: int) -> str:
        """A number without an owner is lost, so that nobody claims it late; who owns it now."""
        found = self._owners.change(index, "", LOST)
        # a claim may have been done and tidied away meanwhile: then `low` is past it
        return found if found != LOST or index >= self._words.low() else ""

    def tidy(self) -> None:
        """Remove this learner's claims that nobody will look at any more.

        A slow learner keeps those of the others; they look again when they have twice as many.
        """
        low = self._words.low()
        with self._lock:
            old, self._old = self._old, [index for index in self._old if index >= low]
            self._tidy_at = max(TIDY_EVERY, 2 * len(self._old))
        for index in old:
            if index < low:
                self._owners.remove(index)
