"""Who does which block of the work: claims in a store that all learners share.

A *block* is a number; what lies behind it (a minibatch) is the caller's matter. Whoever is free
claims the next one, each block is done once, and what a dead learner claimed and did not do goes
back. No learner asks another, and none serves the others: the store arbitrates by `add` and
`compare_set` alone.

Each number is taken once (`add`), by one process. That process tells of it in its words
(`words`), and claims it then (`claims`). So of each number one of these is true:

- it was taken and not told of. Its taker is about to tell, or died, or was buried. It has no claim
  and its part is not settled (`settled`): who looks for lost numbers finds and offers it, at each
  burial, where claims stay in the store for it, and where all are idle and not all is done.
- it is in the words of a process that has claimed it, or is about to, or to take it over. If that
  one dies, who buries it (`burial`) offers the block anew.
- it was offered, and nobody has it. Each process looks at each offer once, and if it dies before it
  has told, others look, too.
- it is done, and was told so by one process.

A process is buried by words in place of its last ones. If it goes on it can tell of nothing any
more, so it claims nothing more, and no two tell that a block is done. What it still takes (the
numbers of one claim) is as if it had died: they have no claim, and others find them. So it does
not matter whether the buried is dead, stands still, goes on or exits, and where.

Over a slow link several numbers are taken at once, told of together, and claimed one by one; for
each of them the above holds (`ahead`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from hadpsgd.decentralized.core.ahead import Ahead
from hadpsgd.decentralized.core.burial import Burial, Used
from hadpsgd.decentralized.core.claims import Owners, is_free
from hadpsgd.decentralized.core.engine import ExcludedError
from hadpsgd.decentralized.core.left import Left
from hadpsgd.decentralized.core.pace import Pace
from hadpsgd.decentralized.core.settled import Parts
from hadpsgd.decentralized.core.stores import Store
from hadpsgd.decentralized.core.tidying import Tidying
from hadpsgd.decentralized.core.words import State, Words, owner_of

OFFERS_EVERY = 8
"""Claims of which one begins with a look at what the dead left; where nothing else is left, all do.
Each look takes a round trip, and over a slow link a round trip may take as long as a gradient."""


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
        ahead: how far it claims ahead, where that is known from before.
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
        used: Used | None = None,
        durable: Callable[[], object] = lambda: None,
        now: Callable[[], float] = time.monotonic,
        pace: Pace | None = None,
        ahead: Ahead | None = None,
        first: int = 0,
    ) -> None:
        self.left = left
        self.learner = learner
        self.learners = learners
        self.generation = generation
        self.durable = durable
        self._words = Words(store, learner=learner, learners=learners)
        self._owners = Owners(store, owner_of(learner, generation=generation))
        self._parts = Parts(store, self._owners, total=len(left))
        self._burial = Burial(
            words=self._words, owners=self._owners, parts=self._parts, left=left, used=used
        )
        self._tidying = Tidying(self._owners, self._parts, self._burial)
        self._lock = threading.Lock()
        self._held: dict[int, int] = {}  # block -> its place
        self._numbers: set[int] = set()  # of these, those taken by `add`
        self._done = 0
        self._finished: list[int] = []  # numbers that it took, whose blocks are done, not told yet
        self._exhausted = False
        self._begun = False
        self._stuck = False
        self._claims = 0
        self._now = now
        self._pace = pace or Pace(learners, now)
        self.ahead = ahead or Ahead()
        self._first = first

    def begin(self) -> None:
        """Before the first claim: bury this learner's former selves, and be known.

        Raises:
            ExcludedError: another process is this learner now.
        """
        self._begun = True
        while True:  # others may say something of former selves meanwhile
            if self.generation:
                self.bury(self.learner, until=self.generation - 1)
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
        return next(iter(self.claim_some(1)), None)

    def claim_some(self, count: int) -> list[int]:
        """As `claim`, of so many blocks at once, or fewer: near the end no more than a share."""
        if not self._begun:
            self.begin()
        total, held = self._first + len(self.left), len(self._held)
        if self._pace.asks(total=total, held=held):
            taken = self._first + self._owners.numbers
            if self._pace.leaves(taken=taken, total=total, held=held):
                return []
        if count > 1:
            count = min(count, max(1, self._spare()))
        self._claims += 1
        if self._claims % OFFERS_EVERY:
            return self._fresh(count) or self._given_back()
        return self._given_back() or self._fresh(count)

    @property
    def paced(self) -> bool:
        """Whether a block more may be claimed ahead: how slow this learner is is known."""
        return self._pace.known or not self._held

    def wants(self, ready: int) -> bool:
        """Whether to claim more ahead, where so many that were claimed are not begun."""
        if not ready or not self.ahead.slow:
            return ready < 1 and self.paced
        return ready < self.ahead.blocks and self._spare() > 0

    def _spare(self) -> int:
        """Blocks that it can claim ahead without being the last."""
        total = self._first + len(self.left)
        share = self._pace.share(total=total, gradient=self.ahead.gradient_seconds)
        return self.ahead.spare(share=share, held=len(self._held))

    def finish(self, block: int) -> None:
        """It is done; told with the next claim."""
        with self._lock:
            index = self._held.pop(block)
            if index in self._numbers:
                self._numbers.discard(index)
                self._finished.append(index)
            self._done += 1

    def tell(self, *, anew: bool = False) -> None:
        """Let the others know what is done and what is held; `anew` as in `Words.say`.

        Raises:
            ExcludedError: the others go on without this process.
        """
        if not self._say(anew=anew):
            raise self._excluded()
        if self._tidying.due and not self.ahead.slow:
            self.tidy()

    def _say(self, *, anew: bool) -> bool:
        """Whether nobody wrote in its place since it said something last."""
        with self._lock:
            done, held = self._done, tuple(sorted(self._held.values()))
            finished = len(self._finished)
        self.durable()
        state = State(generation=self.generation, done=done, held=held)
        said = self._words.say(state, anew=anew)
        if said:
            with self._lock:
                self._tidying.told(self._finished[:finished])
                del self._finished[:finished]
        return said

    def _excluded(self) -> ExcludedError:
        return ExcludedError(
            f"the others took (super-)learner {self.learner} for dead and go on without"
        )

    def give_back(self) -> None:
        """What is claimed and not finished is anybody's; this learner may claim it again."""
        for block, index in sorted(self._held.items()):
            if self._owners.free(index, self._owners.me):
                self._owners.offer(index)
            self._drop(block)
        self.tell()

    def leave(self) -> None:
        """All is done."""
        self.tell()
        self.tidy()

    def look_for_end(self) -> bool:
        """Whether every block is done, by whomever.

        If not, and nobody has one, look for numbers that were lost.
        """
        states = self._words.all()
        if sum(state.done for state in states if state) == len(self.left):
            return True
        stuck = not any(state.held for state in states if state)
        if stuck and self._stuck:  # twice in a row: nobody is about to take what was offered
            self._burial.offer_lost(until=self._owners.numbers)
        self._stuck = stuck
        return False

    def bury(self, learner: int, *, until: int) -> None:
        """A learner's processes up to generation `until` are dead: offer what they left undone.

        Does no harm if others do so too, or did and died half-way, nor if one of the dead goes on.
        """
        self._burial.bury(learner, until=until)

    def _fresh(self, count: int) -> list[int]:
        """Blocks that nobody has had."""
        while not self._exhausted:
            begin = self._now()
            numbers = self._owners.take_numbers(count)
            moment = self._now()
            self.ahead.asked(moment - begin)
            indices = [index for index in numbers if index < len(self.left)]
            self._exhausted = len(indices) < count
            if won := self._take(indices):
                self._pace.claimed(self._first + won[-1], count=len(won), moment=moment)
                return [self.left.block(index) for index in won]
        return []

    def _given_back(self) -> list[int]:
        """A block that was offered."""
        for index in self._owners.offered():
            if self._take_over(index):
                return [self.left.block(index)]
        return []

    def _take(self, indices: list[int]) -> list[int]:
        """Become the owner of numbers taken; of which ones that worked.

        Raises:
            ExcludedError: the others go on without this process; they can have the blocks.
        """
        if not indices:
            return []
        with self._lock:
            self._held.update((self.left.block(index), index) for index in indices)
            self._numbers.update(indices)
        try:
            self.tell(anew=True)
        except ExcludedError:
            for index in indices:
                self._owners.offer(index)
            raise
        won = []
        for index in indices:
            if self._owners.claim(index):
                won.append(index)
            else:
                self._drop(self.left.block(index))
        return won

    def _take_over(self, index: int) -> bool:
        """Become the owner of a block that was offered; whether that worked."""
        if not is_free(self._owners.of(index)):
            return False
        with self._lock:
            self._held[self.left.block(index)] = index
        self.tell(anew=True)
        won = self._owners.take_over(index) and not self._parts.settled(index)
        if not won:
            self._drop(self.left.block(index))
        return won

    def _drop(self, block: int) -> None:
        """It is held no more."""
        with self._lock:
            self._numbers.discard(self._held.pop(block))

    def tidy(self) -> None:
        """Let go of old claims; over a slow link `tidy_some` does so, while nothing else waits."""
        if self.ahead.slow:
            self._tidying.count()
        else:
            self._tidying.whole()

    def tidy_some(self) -> bool:
        """Over a slow link, one call of the store to that end; whether it was needed."""
        return self.ahead.slow and self._tidying.some()
