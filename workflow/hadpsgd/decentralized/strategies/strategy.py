"""What a strategy is; each lies in a file of its own, `registry` lists them.

A strategy says when a learner starts a round of mixing, applies its gradient and begins the next
one, given its counters, and of which parts its mixer is made. Who mixes with whom is the mixing
schedule's matter (`schedules`), how weights travel the transport's. The engine's threads and the
virtual clock ask the same questions, so both run the same strategies.

These files are read by the config, too, so they import neither torch nor what needs it.

Terms: a *node* of the schedule is a super-learner, one learner where `Place.size` is 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from hadpsgd.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from hadpsgd.decentralized.core.outer import Outer
    from hadpsgd.decentralized.strategies.mixer import Mixer
    from hadpsgd.decentralized.strategies.parts import Parts
    from hadpsgd.decentralized.topology.mixing import MixingSchedule


UNROUNDED = "float32"
"""Weights travel as they are."""


@dataclass(frozen=True, kw_only=True)
class Counters:
    """How far a learner is."""

    steps: int
    """Updates applied; the gradient under way has this number."""
    started: int
    """Rounds whose snapshot was taken."""
    rounds: int
    """Rounds mixed in; `started` or one less."""
    missed: int
    """Versions that the gradient under way does not know (its staleness if applied now)."""
    credit: int
    """Rounds that it may start of itself: its pace a gradient, less those it took part in."""
    invited: bool
    """Whether a partner waits for this learner in its next round, or there is news to spread."""
    finished: bool
    """Whether its last gradient is applied."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What a config may ask of a strategy; each takes the values that it has fields for."""

    strategy: str
    among: str = "adpsgd"
    """The strategy among super-learners, where `strategy` is hadpsgd."""
    pace: int = 1
    max_staleness: int = 64
    every: int = 8
    synchronous_steps: int = 0
    outer_rate: float = 0.7
    outer_momentum: float | None = None
    """None: the strategy's own."""
    wire: str = UNROUNDED
    """How weights are rounded on their way (`network.rounding`)."""


class Strategy(ABC):
    """One way of working together."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """One line for tables and help."""
    default_schedule: ClassVar[str] = "ring"
    """The mixing schedule that it takes where none is given."""
    mixes: ClassVar[bool] = True
    """Whether weights are mixed at all."""
    synchronous: ClassVar[bool] = True
    """Whether equal seeds give equal weights; else the timing decides, and is recorded."""
    collective: ClassVar[bool] = False
    """Whether a round is the mean of all weights (the schedule is `complete`)."""
    alone: ClassVar[bool] = False
    """Whether there is one learner only."""
    of_super_learners: ClassVar[bool] = False
    """Whether its nodes are super-learners: another strategy (`Choice.among`) goes among them."""
    among_super_learners: ClassVar[bool] = False
    """Whether it may be that other strategy."""
    pace: int = 1
    """Rounds for each gradient, for an asynchronous strategy."""
    wire: str = UNROUNDED
    """How weights are rounded on their way, for a strategy that has a field for it."""
    push_sum: ClassVar[bool] = False
    """Whether it bears rounds in which a learner takes more or less than it gives away."""
    late: ClassVar[bool] = False
    """Whether gradients are taken at the last average instead of the learner's own weights."""

    @classmethod
    def of(cls, choice: Choice) -> Self:
        """With the values of a config.

        Raises:
            UserError: weights should be rounded, and it cannot do that.
        """
        if choice.wire != UNROUNDED and not cls.rounds():
            raise UserError(
                f"strategy {cls.name} sends weights as they are, not as {choice.wire}",
                fix="Leave `wire` away",
            )
        if not is_dataclass(cls):
            return cls()
        values = {field.name: getattr(choice, field.name) for field in fields(cls) if field.init}
        return cls(**{name: value for name, value in values.items() if value is not None})

    @classmethod
    def rounds(cls) -> bool:
        """Whether it can round weights on their way."""
        return is_dataclass(cls) and any(field.name == "wire" for field in fields(cls))

    @classmethod
    def misfit(cls, schedule: str, *, symmetric: bool) -> str | None:
        """Why it cannot work with that mixing schedule; None if it can."""
        if cls.collective and schedule != "complete":
            return f"{cls.name} averages all weights: its schedule is 'complete'"
        if not cls.synchronous and not symmetric:
            return (
                f"schedule '{schedule}' is directed, and an asynchronous strategy needs exchanges "
                "in both directions: choose ring, random-ring, pairwise or complete, or the "
                "strategy dpsgd"
            )
        return None

    @property
    def shared_steps(self) -> float:
        """How many of the first gradients are averaged over all learners."""
        return 0

    def outer(self, weights: Tensor, schedule: MixingSchedule, node: int) -> Outer | None:  # noqa: ARG002
        """What a mix makes of a learner's weights; None: they are mixed, and that is all.

        `weights` are the parameters', without statistics.
        """
        return None

    @abstractmethod
    def mixer(self, parts: Parts) -> Mixer:
        """A node's mixer, of the parts that there are."""

    def may_start(self, now: Counters) -> bool:
        """Take the snapshot of round `started` now?"""
        raise NotImplementedError

    def may_update(self, now: Counters) -> bool:  # noqa: ARG002
        """Apply the gradient that is ready?"""
        return True

    def may_begin(self, now: Counters) -> bool:  # noqa: ARG002
        """Begin gradient number `steps`?"""
        return True


def check(strategy: Strategy, schedule: MixingSchedule, *, learners: int, size: int) -> None:
    """Refuse what cannot work; `size` is the number of learners in a super-learner.

    Raises:
        UserError: says why.
    """
    where = f"strategy {strategy.name} with schedule {schedule.name}"
    if strategy.alone and learners > 1:
        raise UserError(f"has 1 learner, not {learners}", where=where)
    if strategy.mixes and learners // size < 2:
        raise UserError("needs at least 2 super-learners to mix", where=where)
    if misfit := strategy.misfit(schedule.name, symmetric=schedule.symmetric):
        raise UserError(misfit, where=where)
    if size > 1 and not strategy.synchronous and schedule.free:
        raise UserError(
            "super-learners do not draw partners",
            where=where,
            fix="Choose ring, random-ring, pairwise or complete",
        )
    if size > 1 and strategy.mixes and strategy.shared_steps:
        raise UserError(
            "cannot share gradients among super-learners at first",
            where=where,
            fix="Set synchronous_steps to 0, or super_learner to 1",
        )
