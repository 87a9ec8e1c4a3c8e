"""Who takes part in mixing, agreed on when a learner dies or comes (back).

A membership lasts from one *change* to the next; the store that all processes share arbitrates.
A change goes like this, in the communication threads; gradients go on meanwhile:

1. Who loses a partner, or wants to join, proposes the change. The others look for proposals
   between rounds and while they wait in one.
2. Everybody reports the round it is in and whose snapshots it holds. A node that a partner lost is
   given up unless it reports. Who does not listen any more is dead, whether it has reported or not.
3. The lowest living node writes down the decision: the members, the round that all go on with,
   and the reports. The first decision counts; if its writer dies before, the next one writes.
4. An exchange of the round that was broken off counts only between two living nodes that each
   held the other's snapshot, so each mix keeps the mean of those who did it.
5. Newcomers get the weights of a neighbour.

The store must outlive the learners: torchrun's agent or `hadpsgd launch` hosts it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field

import torch.distributed as dist

from hadpsgd.decentralized.topology.mixing import MixingSchedule

LOOK_SECONDS = 0.25
PATIENCE_SECONDS = 1.0
"""A node that is waited for so long (for its report, or its decision) is asked whether it lives."""


OVER = "over"


class ExcludedError(RuntimeError):
    """The others took this learner for dead; it must come again as a newcomer."""


class TooLateError(RuntimeError):
    """The others have come to their end."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Where a node stands when the membership changes."""

    round: int
    """The round that it is in, or would start next."""
    exchanging: bool = False
    """Whether it is in the middle of that round."""
    holds: tuple[int, ...] = ()
    """Nodes whose snapshots of that round it has whole."""
    pause: bool = False
    """Whether a pause was picked that it has not reached."""
    stop: bool = False
    """Whether an end was picked."""
    finished: int = 0
    """Bit i: node i is known to have applied its last gradient."""

    def has(self, *, other: int, round_: int) -> bool:
        """Whether it holds the snapshot of `other` of that round, or has used it already."""
        if self.round == round_:
            return self.exchanging and other in self.holds
        return self.round > round_


@dataclass(frozen=True)
class Decision:
    """A new membership."""

    epoch: int
    alive: tuple[int, ...]
    round: int
    """The round that all go on with."""
    sources: dict[int, int] = field(default_factory=dict)
    """Newcomer -> whose weights it gets."""
    reports: dict[int, Report] = field(default_factory=dict)
    """Of those who go on, and the last words of those who have come to their end."""

    def settled(self, node: int) -> list[int]:
        """Partners with whom the round that `node` was in counts."""
        mine = self.reports[node]
        return [
            j
            for j in mine.holds
            if j in self.reports and self.reports[j].has(other=node, round_=mine.round)
        ]

    @property
    def finished(self) -> int:
        """All who are known to have applied their last gradients."""
        bits = 0
        for report in self.reports.values():
            bits |= report.finished
        return bits

    def to_json(self) -> str:
        """For the store."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Decision:
        """Inverse of `to_json`."""
        content = json.loads(text)
        return cls(
            content["epoch"],
            tuple(content["alive"]),
            content["round"],
            {int(node): source for node, source in content["sources"].items()},
            {int(node): _report(report) for node, report in content["reports"].items()},
        )


def _report(content: dict[str, object]) -> Report:
    return Report(**{**content, "holds": tuple(content["holds"])})  # type: ignore[arg-type]


class Membership:
    """One node's view.

    Args:
        store: shared by all.
        base: the schedule on all nodes.
        node: this one.
        lives: whether another node listens; asked when it does not report.
        seconds: who does not report for so long is out, even if it listens.
    """

    def __init__(
        self,
        store: dist.Store,
        base: MixingSchedule,
        node: int,
        lives: Callable[[int], bool],
        seconds: float = 300.0,
    ) -> None:
        self.store = store
        self.base = base
        self.node = node
        self.lives = lives
        self.seconds = seconds
        self.epoch = 0
        self.alive = tuple(range(base.learners))
        self.view = self.epoch, self.alive
        """Both, for another thread: they belong together."""
        self._looked = 0.0

    def changing(self) -> bool:
        """Whether a change is proposed; looks into the store now and then only."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return False
        self._looked = now
        return self._there("proposed")

    def change(self, report: Report, lost: Collection[int] = ()) -> Decision:
        """Take part in a change, proposing it if need be; blocks until it is decided.

        `lost`: nodes with whom an exchange broke off.

        Raises:
            ExcludedError: the others go on without this node.
        """
        for node in lost:
            self._put(f"lost/{node}")
        self._put(f"report/{self.node}", json.dumps(asdict(report)))
        self._put("proposed")
        decision = self._decided()
        if self.node not in decision.alive:
            raise ExcludedError(f"the others took learner {self.node} for dead and go on without")
        self.adopt(decision)
        return decision

    def join(self, seconds: float) -> Decision:
        """As a newcomer: propose to take this node's place until a decision says so.

        Raises:
            TooLateError: the run is over.
            TimeoutError: nobody answered.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            while self._there("decision"):
                self.adopt(self._read())
            self._put(f"dead/{self.node}")  # its former self, if nobody has noticed yet
            self._put(f"join/{self.node}")
            self._put("proposed")
            while not self._there("decision") and time.monotonic() < deadline:
                if self.store.check([OVER]):
                    raise TooLateError(f"the others ended before learner {self.node} joined them")
                time.sleep(0.01)
            if self._there("decision"):
                decision = self._read()
                self.adopt(decision)
                if self.node in decision.sources:
                    return decision
        raise TimeoutError(f"nobody let learner {self.node} join within {seconds:g} s")

    def end(self, report: Report) -> None:
        """This node's last word: all its rounds are done. Newcomers come too late."""
        self.store.set(_last_word(self.node), json.dumps(asdict(report)))
        self.store.set(OVER, "")

    def adopt(self, decision: Decision) -> None:
        """Live by it."""
        self.view = self.epoch, self.alive = decision.epoch, decision.alive
        self._looked = time.monotonic()

    def _decided(self) -> Decision:
        """Wait for the decision, or make it if it is this node's turn."""
        patience = time.monotonic() + PATIENCE_SECONDS
        since: dict[tuple[int, bool], float] = {}
        while not self._there("decision"):
            living = [n for n in self.alive if not self._gone(n)]
            missing = [n for n in living if not self._there(f"report/{n}")]
            awaited = missing or living[:1]
            # each from when it was awaited: one that hangs must not take the one who decides along
            now = time.monotonic()
            since = {key: since.get(key, now) for key in ((n, n in missing) for n in awaited)}
            if awaited == [self.node]:
                self._decide(living)
            elif now > patience:
                patience = now + PATIENCE_SECONDS
                for (node, _), begin in since.items():
                    if now > begin + self.seconds or not self.lives(node):
                        self._put(f"dead/{node}")
            time.sleep(0.005)
        return self._read()

    def _gone(self, node: int) -> bool:
        """Whether the others go on without it."""
        if self._there(f"dead/{node}") or self._ended(node):
            return True
        return self._there(f"lost/{node}") and not self._there(f"report/{node}")

    def _ended(self, node: int) -> bool:
        """Whether it has come to the end of the run."""
        return self.store.check([_last_word(node)])

    def _decide(self, living: list[int]) -> None:
        reports = {node: _report(json.loads(self._get(f"report/{node}"))) for node in living}
        for node in filter(self._ended, self.alive):
            reports[node] = _report(json.loads(self.store.get(_last_word(node))))
        nodes = self.base.learners
        newcomers = [n for n in range(nodes) if n not in living and self._there(f"join/{n}")]
        sources = {n: _nearest(living, n, nodes) for n in newcomers}
        decision = Decision(
            self.epoch + 1,
            tuple(sorted([*living, *newcomers])),
            max(report.round + report.exchanging for report in reports.values()),
            sources,
            reports,
        )
        self.store.compare_set(self._key("decision"), "", decision.to_json())

    def _read(self) -> Decision:
        return Decision.from_json(self._get("decision"))

    def _key(self, name: str) -> str:
        return f"members/{self.epoch + 1}/{name}"

    def _there(self, name: str) -> bool:
        return self.store.check([self._key(name)])

    def _put(self, name: str, value: str = "yes") -> None:
        self.store.set(self._key(name), value)

    def _get(self, name: str) -> str:
        return self.store.get(self._key(name)).decode()


def _last_word(node: int) -> str:
    return f"ended/{node}"


def _nearest(living: Collection[int], newcomer: int, nodes: int) -> int:
    """The living node that comes next in the ring."""
    return min(living, key=lambda node: (node - newcomer) % nodes)
