"""Blocks for one learner, claimed and read a little ahead by a thread."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Any, Generic, TypeVar

from hadpsgd.decentralized.core.threads import Clock, RealClock
from hadpsgd.decentralized.core.work import Ledger

T = TypeVar("T")
LOOK_SECONDS = 0.2
"""How often who has nothing to do looks for blocks that were given back."""
Living = Callable[[], tuple[int, Collection[int]]]


class Claims:
    """A learner's next block, with regard to those who have died; asked by one thread.

    Args:
        ledger: this learner's claims.
        living: as of `Supply`.
    """

    def __init__(self, ledger: Ledger, living: Living | None = None) -> None:
        self.ledger = ledger
        self.living = living or (lambda: (0, range(ledger.learners)))
        self._seen = self.living()

    def next(self) -> int | None:
        """A block; None: there is none now. What the dead left goes back first."""
        return next(iter(self.some(1)), None)

    def some(self, count: int) -> list[int]:
        """As `next`, so many at once, or fewer."""
        seen, self._seen = self._seen, self.living()
        if self._seen != seen and self.ledger.learner == min(self._seen[1]):
            self._bury()
        return self.ledger.claim_some(count)

    def over(self) -> bool:
        """Nothing to claim: say what is done, bury the dead; whether all is done."""
        self.ledger.tell()
        self._bury()
        return self.ledger.look_for_end()

    def _bury(self) -> None:
        generation, alive = self.living()
        for learner in set(range(self.ledger.learners)) - set(alive):
            self.ledger.bury(learner, until=generation)


class Supply(Generic[T]):
    """What a learner works on next; the gradients never wait for the store.

    with Supply(ledger, read) as supply:
        while not supply.over:
            piece = supply.take()
            if piece is None: ...nothing to do now: serve the others for a while...
            block, examples = piece
            ...a gradient, applied...
            supply.finish(block)

    Args:
        ledger: this learner's claims.
        read: makes a block's content, in the thread.
        living: (generation, learners that live then); who is not among them is dead, and so were
            all its processes up to that generation.
        eager: claim ahead also while it is not known how slow this learner is.
        clock: time and threads; real ones if None.
    """

    def __init__(
        self,
        ledger: Ledger,
        read: Callable[[int], T],
        *,
        living: Living | None = None,
        eager: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.ledger = ledger
        self.read = read
        self.eager = eager
        self.over = False
        """Whether every block is done, by whomever."""
        self._clock = clock or RealClock()
        self._ready: deque[tuple[int, T]] = deque()
        self._changed = self._clock.condition("blocks")
        self._idle = self._closed = False
        self._claims = Claims(ledger, living)
        self._error: BaseException | None = None
        self._begun = -math.inf
        """When the gradient in hand began, at the earliest."""
        self._thread: Any = None

    def __enter__(self) -> Supply[T]:
        """Begin to claim."""
        self._thread = self._clock.spawn(self._guarded, name="work", daemon=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Claim no more; checkpoints know nothing of what is claimed and not done."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def take(self) -> tuple[int, T] | None:
        """(block, content), or None if there is none now; waits while one is on its way.

        Raises:
            Exception: what went wrong in the thread.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: bool(self._ready or self._idle or self.over or self._error)
            )
            if self._error is not None:
                raise self._error
            if not self._ready:
                return None
            piece = self._ready.popleft()
            self._begun = self._clock.now()
            self._changed.notify_all()
            return piece

    def finish(self, block: int) -> None:
        """Its gradient is applied, and in the record."""
        self.ledger.finish(block)
        with self._changed:
            now = self._clock.now()
            self.ledger.ahead.computed(now - self._begun)
            self._begun = now
            self._changed.notify_all()

    def _guarded(self) -> None:
        try:
            self._claim()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _claim(self) -> None:
        while not self._closed and not self.over:
            with self._changed:
                wanted = self._wanted()
            if not wanted and self.ledger.tidy_some():
                continue
            with self._changed:
                if not self._changed.wait_for(self._wanted, LOOK_SECONDS):
                    continue
            blocks = [] if self._closed else self._claims.some(self.ledger.ahead.at_once)
            for block in blocks:
                if not self._closed:
                    self._give((block, self.read(block)))
            if not blocks:
                self._rest()

    def _give(self, piece: tuple[int, T]) -> None:
        with self._changed:
            self._idle = False
            self._ready.append(piece)
            self._changed.notify_all()

    def _rest(self) -> None:
        """There was nothing to claim: look whether all is done, and again a little later."""
        over = self._claims.over()
        with self._changed:
            self._idle, self.over = True, over
            self._changed.notify_all()
            if not over:
                self._changed.wait_for(lambda: self._closed, LOOK_SECONDS)

    def _wanted(self) -> bool:
        ready = len(self._ready)
        return self._closed or (self.eager and not ready) or self.ledger.wants(ready)
