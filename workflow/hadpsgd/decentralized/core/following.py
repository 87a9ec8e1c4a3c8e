"""Members of a super-learner do the same work in the same order, as their first one decides.

The first member claims for all of them, and writes each decision into the store: a block, to rest
(there is nothing to claim now), or that all is done. The n-th decision is the n-th thing that each
of them does. A thread of each member reads ahead what lies behind it.

A member does nothing alone: an update needs all members' gradients, and a rest all their words. So
who begins on a decision knows that all have begun on the one before, and have read it. A first
member whose others have died goes on; who takes their places begins with the block that it is on.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Generic, Protocol, TypeVar

from hadpsgd.decentralized.core.stores import Store
from hadpsgd.decentralized.core.supply import LOOK_SECONDS, Claims

T = TypeVar("T")
REST, OVER = "rest", "over"
BEGINNING = "beginning"
FIRST_LOOK_SECONDS, LAST_LOOK_SECONDS = 0.001, 0.05
"""A member that waits for a decision looks again after so long, each time after twice as long."""


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """Where a member begins, as the first one tells it."""

    prefix: str
    """Of the decisions."""
    number: int = 0
    """Of the first one that it takes."""
    progress: int
    """Steps of the run that are done."""


class Given:
    """What the first member of a super-learner decided.

    Args:
        store: shared by the members.
        prefix: of its keys; of this super-learner and life alone.
        seconds: how long a word is waited for.
    """

    def __init__(self, store: Store, prefix: str, *, seconds: float) -> None:
        self.store = store
        self.prefix = prefix
        self.seconds = seconds

    def write(self, name: str, *, word: str) -> None:
        """For all members to read."""
        self.store.set(f"{self.prefix}/{name}", word)

    def introduce(self, beginning: Beginning) -> None:
        """Tell members, which wait for it, where they begin."""
        self.write(BEGINNING, word=json.dumps(asdict(beginning)))

    def beginning(self) -> Beginning:
        """Where this member begins.

        Raises:
            TimeoutError: the first one did not say so in time.
        """
        return Beginning(**json.loads(self.read(BEGINNING)))

    def of(self, prefix: str) -> Given:
        """The words under another prefix."""
        return Given(self.store, prefix, seconds=self.seconds)

    def remove(self, name: str) -> None:
        """All have read it."""
        self.store.delete_key(f"{self.prefix}/{name}")

    def read(self, name: str, given_up: Callable[[], bool] = lambda: False) -> str:
        """Wait for a word; "" if that was given up.

        Raises:
            TimeoutError: it did not come in time.
        """
        key, pause = f"{self.prefix}/{name}", FIRST_LOOK_SECONDS
        deadline = time.monotonic() + self.seconds
        while not given_up():
            if self.store.check([key]):
                return self.store.get(key).decode()
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"the first member of the super-learner did not say within {self.seconds:g} s "
                    "what to do next; see its log (members take the same steps, and leave a loop "
                    "over batches together)"
                )
            time.sleep(pause)
            pause = min(2 * pause, LAST_LOOK_SECONDS)
        return ""


class Decisions(Protocol):
    """What a super-learner does, one thing after the other; asked by one thread."""

    def next(self, given_up: Callable[[], bool]) -> str:
        """A block's number, `REST` or `OVER`; anything where that was given up."""

    def finish(self, block: int) -> None:
        """It is applied."""


class Leading(Decisions):
    """The first member's: it claims, and tells the others."""

    def __init__(self, claims: Claims, given: Given, *, ahead: int = 1) -> None:
        """`ahead`: decisions by which this member may be ahead of the others when it asks."""
        self.claims = claims
        self.given = given
        self.ahead = ahead
        self._number = 0

    def next(self, given_up: Callable[[], bool]) -> str:  # noqa: ARG002
        """Decided now."""
        block = self.claims.next()
        word = str(block) if block is not None else OVER if self.claims.over() else REST
        self.given.write(str(self._number), word=word)
        # this member has begun on number - ahead, so all have read the one before that
        if self._number > self.ahead:
            self.given.remove(str(self._number - self.ahead - 1))
        self._number += 1
        return word

    def forget(self) -> None:
        """All members have come to the end, or left."""
        for number in range(max(0, self._number - self.ahead - 1), self._number):
            self.given.remove(str(number))

    def finish(self, block: int) -> None:
        """Told to all learners with the next claim."""
        self.claims.ledger.finish(block)


class Following(Decisions):
    """Any other member's."""

    def __init__(self, given: Given, number: int = 0) -> None:
        """`number`: of the first decision that it takes."""
        self.given = given
        self._number = number

    def next(self, given_up: Callable[[], bool]) -> str:
        """As the first member says."""
        word = self.given.read(str(self._number), given_up)
        self._number += 1
        return word

    def finish(self, block: int) -> None:
        """The first member tells of it."""


class MemberSupply(Generic[T]):
    """As `Supply`, for one member: all take the same in the same order, None (rest) included.

    Args:
        decisions: of the super-learner.
        read: makes this member's part of a block, in the thread.
        ahead: decisions that are asked for, and read, before they are taken.
        check: called now and then while one is waited for; raises what went wrong elsewhere.
    """

    def __init__(
        self,
        decisions: Decisions,
        read: Callable[[int], T],
        *,
        ahead: int = 1,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        self.decisions = decisions
        self.read = read
        self.ahead = ahead
        self.check = check
        self.over = False
        """Whether it was taken that every block is done."""
        self.taken = 0
        """Decisions taken so far."""
        self._ready: deque[tuple[int, T] | str] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, name="work", daemon=True)

    def __enter__(self) -> MemberSupply[T]:
        """Begin to ask."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ask no more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def take(self) -> tuple[int, T] | None:
        """(block, content), or None: rest once, or `over`; waits for the decision.

        Raises:
            Exception: what went wrong in the thread, or as `check` says.
        """
        with self._changed:
            while not (self._ready or self.over or self._error):
                self._changed.wait(LOOK_SECONDS)
                self.check()
            if self._error is not None:
                raise self._error
            if self.over:
                return None
            found = self._ready.popleft()
            self.taken += 1
            self._changed.notify_all()
        self.over = found == OVER
        return None if isinstance(found, str) else found

    def finish(self, block: int) -> None:
        """Its gradient is applied, and in the record."""
        self.decisions.finish(block)

    def _guarded(self) -> None:
        try:
            self._ask()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _ask(self) -> None:
        word = REST
        while word != OVER:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or len(self._ready) < self.ahead)
            if self._closed:
                return
            word = self.decisions.next(lambda: self._closed)
            if self._closed:
                return
            found = word if word in (REST, OVER) else (int(word), self.read(int(word)))
            with self._changed:
                self._ready.append(found)
                self._changed.notify_all()
