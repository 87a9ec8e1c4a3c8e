"""What ranks tell each other of a change of the membership, through the store that all share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

from hadpsgd.decentralized.core.stores import Store
from hadpsgd.decentralized.core.threads import Clock
from hadpsgd.decentralized.elastic.decision import Decision, Report, report_of

FIRST_POLL_SECONDS, LAST_POLL_SECONDS = 0.005, 0.05
"""Who waits for a word in the store asks again after so long, each time after twice as long."""


def polls(clock: Clock, deadline: float) -> Iterator[None]:
    """Moments to ask the store, until `deadline`; at least one."""
    pause = FIRST_POLL_SECONDS
    yield
    while (now := clock.now()) < deadline:
        clock.sleep(min(pause, deadline - now))
        pause = min(2 * pause, LAST_POLL_SECONDS)
        yield


class Notices:
    """Those of one change, by name: all ranks see them, and nobody takes one back.

    Args:
        store: shared by all.
        clock: in which they are waited for.
        epoch: number of the membership that the change begins.
    """

    def __init__(self, store: Store, clock: Clock, epoch: int) -> None:
        self.store = store
        self.clock = clock
        self.epoch = epoch

    def there(self, *names: str) -> bool:
        """Whether all of them were put."""
        return self.store.check([self._key(name) for name in names])

    def comes(self, name: str, deadline: float) -> bool:
        """Whether it is there by then."""
        return any(self.there(name) for _ in polls(self.clock, deadline))

    def put(self, name: str, *, value: str = "yes") -> None:
        """Tell all."""
        self.store.set(self._key(name), value)

    def get(self, name: str) -> str:
        """The value of one that is there."""
        return self.store.get(self._key(name)).decode()

    def add(self, name: str, amount: int) -> int:
        """To a number that is 0 at first: the sum."""
        return self.store.add(self._key(name), amount)

    def report(self, rank: int) -> Report:
        """Where a rank that has reported stands."""
        return report_of(json.loads(self.get(f"report/{rank}")))

    def decide(self, decision: Decision) -> None:
        """The first decision counts."""
        self.store.compare_set(self._key("decision"), "", decision.to_json())

    def decision(self) -> Decision:
        """The one that counts."""
        return Decision.from_json(self.get("decision"))

    def end(self, rank: int, report: Report) -> None:
        """A rank's last word, in this change and all that follow: it has come to the run's end."""
        self.store.set(_last_word(rank), json.dumps(asdict(report)))

    def ended(self, rank: int) -> bool:
        """Whether it has come to the end of the run."""
        return self.store.check([_last_word(rank)])

    def last_word(self, rank: int) -> Report:
        """Of a rank that has ended."""
        return report_of(json.loads(self.store.get(_last_word(rank))))

    def _key(self, name: str) -> str:
        return f"members/{self.epoch}/{name}"


def _last_word(rank: int) -> str:
    return f"ended/{rank}"
