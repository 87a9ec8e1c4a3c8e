"""Who takes part in mixing, agreed on when a learner dies or comes (back).

A membership lasts from one *change* to the next; the store that all processes share arbitrates.
Every rank takes part in a change; those who are members of it are nodes (super-learners). It goes
like this, in the communication threads; gradients go on meanwhile:

1. Who loses a partner, or wants to join, proposes the change. The others look for proposals
   between rounds and while they wait in one.
2. Everybody reports the round it is in and whose snapshots it holds. A rank that a partner lost is
   given up unless it reports. Who does not listen any more is dead, whether it has reported or not.
   A super-learner of which a rank is dead leaves as a whole.
3. The lowest living rank writes down the decision: the nodes, the round that all go on with,
   and the reports. The first decision counts; if its writer dies before, the next one writes.
4. An exchange of the round that was broken off counts only between two living nodes all of whose
   ranks held their partner's snapshot, so each mix keeps the mean of those who did it.
5. Newcomers get the weights of a neighbour. A super-learner joins as a whole: its first rank asks,
   the others look for the decision that lets this *life* of it in.

The store must outlive the learners: torchrun's agent or `hadpsgd launch` hosts it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable
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
class Newcomer:
    """What a node that joins says of itself."""

    life: int = 1
    """Which start of its processes this is."""
    steps: int = 0
    """Gradients that its former self applied."""
    version: int = 0
    """Its former self's last version."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Where a rank stands when the membership changes."""

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
    steps: int = 0
    """Updates applied, or decided on; rests count."""

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
    """By rank: of those who go on, and the last words of those who have come to their end."""
    newcomers: dict[int, Newcomer] = field(default_factory=dict)
    """Newcomer -> what it says of itself."""
    size: int = 1
    """Ranks of a node."""

    def of_node(self, node: int) -> list[Report]:
        """The reports of its ranks; none if some are missing."""
        ranks = range(node * self.size, (node + 1) * self.size)
        return [self.reports[r] for r in ranks] if self.reports.keys() >= set(ranks) else []

    def steps(self, node: int) -> int:
        """Updates and rests that a rank of the node has decided on: all its ranks do so many."""
        return max(report.steps for report in self.of_node(node))

    def settled(self, rank: int) -> list[int]:
        """Nodes with whom the round that `rank` was in counts."""
        mine, node = self.reports[rank], rank // self.size
        return [
            j
            for j in mine.holds
            if (theirs := self.of_node(j))
            and all(report.has(other=node, round_=mine.round) for report in theirs)
            and all(report.has(other=j, round_=mine.round) for report in self.of_node(node))
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
            {int(rank): _report(report) for rank, report in content["reports"].items()},
            {int(node): Newcomer(**told) for node, told in content["newcomers"].items()},
            content["size"],
        )


def _report(content: dict[str, object]) -> Report:
    return Report(**{**content, "holds": tuple(content["holds"])})  # type: ignore[arg-type]


class Membership:
    """One rank's view.

    Args:
        store: shared by all.
        base: the schedule on all nodes.
        rank: this one.
        lives: whether another rank listens; asked when it does not report.
        seconds: who does not report for so long is out, even if it listens.
        size: ranks of a node.
    """

    def __init__(
        self,
        store: dist.Store,
        base: MixingSchedule,
        rank: int,
        lives: Callable[[int], bool],
        seconds: float = 300.0,
        *,
        size: int = 1,
    ) -> None:
        self.store = store
        self.base = base
        self.rank = rank
        self.node = rank // size
        self.size = size
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

        `lost`: ranks with whom an exchange broke off.

        Raises:
            ExcludedError: the others go on without this node.
        """
        for rank in lost:
            self._put(f"lost/{rank}")
        self._put(f"report/{self.rank}", json.dumps(asdict(report)))
        self._put("proposed")
        decision = self._decided()
        if self.node not in decision.alive:
            what = f"learner {self.rank}" if self.size == 1 else f"super-learner {self.node}"
            raise ExcludedError(f"the others took {what} for dead and go on without")
        self.adopt(decision)
        return decision

    def join(self, seconds: float, newcomer: Newcomer | None = None) -> Decision:
        """As a newcomer: propose to take this node's place until a decision says so.

        Of a super-learner the first rank proposes; the others wait for what is decided on it.

        Raises:
            TooLateError: the run is over.
            TimeoutError: nobody answered.
        """
        newcomer = newcomer or Newcomer()
        deadline = time.monotonic() + seconds
        first = self.rank == self.node * self.size
        while first and self._there("decision"):
            self.adopt(self._read())
        while time.monotonic() < deadline:
            if first:
                # its former selves, if nobody has noticed yet
                for rank in self._ranks([self.node]):
                    self._put(f"dead/{rank}")
                self._put(f"join/{self.node}", json.dumps(asdict(newcomer)))
                self._put("proposed")
            while not self._there("decision") and time.monotonic() < deadline:
                if self.store.check([OVER]):
                    raise TooLateError(f"the others ended before learner {self.rank} joined them")
                time.sleep(0.01)
            if self._there("decision"):
                decision = self._read()
                self.adopt(decision)
                if self._lets_in(decision, newcomer.life):
                    return decision
        raise TimeoutError(f"nobody let learner {self.rank} join within {seconds:g} s")

    def all_have_it(self, mine: bool, *, seconds: float) -> bool:
        """As a newcomer: whether all ranks of this node have got a neighbour's weights.

        Raises:
            TimeoutError: one of them does not say.
        """
        if self.size == 1:
            return mine
        part = dist.PrefixStore(f"members/{self.epoch}/got", self.store)
        part.set(str(self.rank), "yes" if mine else "no")
        deadline = time.monotonic() + seconds
        ranks = self._ranks([self.node])
        while not all(part.check([str(rank)]) for rank in ranks):
            if time.monotonic() > deadline:
                raise TimeoutError(f"other ranks of super-learner {self.node} fell silent")
            time.sleep(0.01)
        return all(part.get(str(rank)) == b"yes" for rank in ranks)

    def end(self, report: Report) -> None:
        """This rank's last word: all its rounds are done. Newcomers come too late."""
        self.store.set(_last_word(self.rank), json.dumps(asdict(report)))
        self.store.set(OVER, "")

    def adopt(self, decision: Decision) -> None:
        """Live by it."""
        self.view = self.epoch, self.alive = decision.epoch, decision.alive
        self._looked = time.monotonic()

    def _lets_in(self, decision: Decision, life: int) -> bool:
        """Whether this node, in this life, is one of its newcomers."""
        told = decision.newcomers.get(self.node)
        return told is not None and told.life == life

    def _decided(self) -> Decision:
        """Wait for the decision, or make it if it is this rank's turn."""
        patience = time.monotonic() + PATIENCE_SECONDS
        since: dict[tuple[int, bool], float] = {}
        while not self._there("decision"):
            living = self._living()
            missing = [rank for rank in living if not self._there(f"report/{rank}")]
            awaited = missing or living[:1]
            # each from when it was awaited: one that hangs must not take the one who decides along
            now = time.monotonic()
            since = {key: since.get(key, now) for key in ((r, r in missing) for r in awaited)}
            if awaited == [self.rank]:
                self._decide(living)
            elif now > patience:
                patience = now + PATIENCE_SECONDS
                for (rank, _), begin in since.items():
                    if now > begin + self.seconds or not self.lives(rank):
                        self._put(f"dead/{rank}")
            time.sleep(0.005)
        return self._read()

    def _ranks(self, nodes: Iterable[int]) -> list[int]:
        return [rank for n in nodes for rank in range(n * self.size, (n + 1) * self.size)]

    def _living(self) -> list[int]:
        """Ranks of nodes none of whose ranks is dead, without those that have come to the end."""
        living = []
        for node in self.alive:
            going_on = [rank for rank in self._ranks([node]) if not self._ended(rank)]
            if not any(map(self._dead, going_on)):
                living += going_on
        return living

    def _dead(self, rank: int) -> bool:
        """Whether the others go on without it."""
        if self._there(f"dead/{rank}"):
            return True
        return self._there(f"lost/{rank}") and not self._there(f"report/{rank}")

    def _ended(self, rank: int) -> bool:
        """Whether it has come to the end of the run."""
        return self.store.check([_last_word(rank)])

    def _decide(self, living: list[int]) -> None:
        reports = {rank: _report(json.loads(self._get(f"report/{rank}"))) for rank in living}
        for rank in filter(self._ended, self._ranks(self.alive)):
            reports[rank] = _report(json.loads(self.store.get(_last_word(rank))))
        going_on = sorted({rank // self.size for rank in living})
        nodes = self.base.learners
        newcomers = {
            n: Newcomer(**json.loads(self._get(f"join/{n}")))
            for n in range(nodes)
            if n not in going_on and self._there(f"join/{n}")
        }
        decision = Decision(
            self.epoch + 1,
            tuple(sorted([*going_on, *newcomers])),
            max(report.round + report.exchanging for report in reports.values()),
            {n: _nearest(going_on, n, nodes) for n in newcomers},
            reports,
            newcomers,
            self.size,
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


def _last_word(rank: int) -> str:
    return f"ended/{rank}"


def _nearest(living: Collection[int], newcomer: int, nodes: int) -> int:
    """The living node that comes next in the ring."""
    return min(living, key=lambda node: (node - newcomer) % nodes)
