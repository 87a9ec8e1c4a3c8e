"""What ranks tell each other when the membership changes, and what is decided (`membership`)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from hadpsgd.decentralized.core.place import ranks_of


@dataclass(frozen=True, kw_only=True)
class Newcomer:
    """What a node that joins says of itself."""

    life: int = 1
    """Which start of its processes this is."""
    steps: int = 0
    """Gradients that its former self applied."""
    version: int = 0
    """Its former self's last version."""
    alone: bool = False
    """Whether its first rank alone comes: it is reduced from the beginning."""


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
    reduced: tuple[int, ...] = ()
    """Nodes of which the first rank alone goes on, or comes."""
    shrunk: tuple[int, ...] = ()
    """Those of them that were here, and whole, until now."""
    restored: tuple[int, ...] = ()
    """Nodes that are whole from now on: until now their first rank alone was there, and reports."""
    generations: dict[int, int] = field(default_factory=dict)
    """Node -> number of the membership with which its processes came; not of those that were there
    from the beginning."""

    def of_node(self, node: int) -> list[Report]:
        """The reports of its ranks; none if some are missing."""
        alone = (*self.reduced, *self.restored)
        ranks = ranks_of(node, size=self.size, reduced=alone)
        return [self.reports[r] for r in ranks] if self.reports.keys() >= set(ranks) else []

    def steps(self, node: int) -> int:
        """Updates and rests that a rank of the node has decided on: all its ranks do so many."""
        return max(report.steps for report in self.of_node(node))

    def settled(self, rank: int) -> list[int]:
        """Nodes with whom the round that `rank` was in counts.

        Another rank of the node that has mixed it in needed all that came to any of them.
        """
        mine, node = self.reports[rank], rank // self.size
        if self.past(node, round_=mine.round):
            return list(mine.holds)
        if node in self.shrunk:  # nobody knows what came to those that died
            return []
        return [
            j
            for j in mine.holds
            if (theirs := self.of_node(j))
            and (j not in self.shrunk or self.past(j, round_=mine.round))
            and all(report.has(other=node, round_=mine.round) for report in theirs)
            and all(report.has(other=j, round_=mine.round) for report in self.of_node(node))
        ]

    def past(self, node: int, *, round_: int) -> bool:
        """Whether a rank of the node has made the mix of that round."""
        return any(report.round > round_ for report in self.of_node(node))

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
            {int(rank): report_of(report) for rank, report in content["reports"].items()},
            {int(node): Newcomer(**told) for node, told in content["newcomers"].items()},
            content["size"],
            tuple(content["reduced"]),
            tuple(content["shrunk"]),
            tuple(content["restored"]),
            {int(node): number for node, number in content["generations"].items()},
        )


def report_of(content: dict[str, object]) -> Report:
    """What a rank wrote into the store."""
    return Report(**{**content, "holds": tuple(content["holds"])})  # type: ignore[arg-type]
