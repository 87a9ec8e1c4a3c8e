"""Strategies: when a learner starts a round of mixing, applies its gradient, begins the next one.

A strategy is these three answers, given a learner's counters. Who mixes with whom is the mixing
schedule's matter (`schedules`), how weights travel the transport's. The engine's threads and the
virtual clock ask the same questions, so both run the same strategies.

Terms: a *node* of the schedule is a super-learner, one learner where `Place.size` is 1. Sources:
D-PSGD arXiv 1705.09056, AD-PSGD 1710.06952, RAND and D1D 2002.01119, H-ADPSGD 1907.05701,
post-local SGD 1808.07217.
"""

from __future__ import annotations

import math
from abc import ABC
from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from hadpsgd.errors import UserError


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


class Strategy(ABC):
    """One way of working together."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """One line for tables and help."""
    mixes: ClassVar[bool] = True
    """Whether weights are mixed at all."""
    synchronous: ClassVar[bool] = True
    """Whether equal seeds give equal weights; else the timing decides, and is recorded."""
    collective: ClassVar[bool] = False
    """Whether a round is one allreduce of weights (the schedule is `complete`)."""
    pace: int = 1
    """Rounds for each gradient, for an asynchronous strategy."""
    late: ClassVar[bool] = False
    """Whether gradients are taken at the last average instead of the learner's own weights."""

    @property
    def shared_steps(self) -> float:
        """How many of the first gradients are averaged over all learners."""
        return 0

    def may_start(self, now: Counters) -> bool:
        """Take the snapshot of round `started` now?"""
        raise NotImplementedError

    def may_update(self, now: Counters) -> bool:  # noqa: ARG002
        """Apply the gradient that is ready?"""
        return True

    def may_begin(self, now: Counters) -> bool:  # noqa: ARG002
        """Begin gradient number `steps`?"""
        return True


class Ssgd(Strategy):
    """Synchronous SGD: the mean gradient of all learners, every step."""

    name = "ssgd"
    summary = "gradient allreduce every step"
    mixes = False

    @property
    @override
    def shared_steps(self) -> float:
        """All."""
        return math.inf


class Dpsgd(Strategy):
    """D-PSGD: W[k+1] = W[k] T - a g(W[k]), round k exchanged while gradient k is computed."""

    name = "dpsgd"
    summary = "weights mixed with neighbours once a step, in step"

    @override
    def may_start(self, now: Counters) -> bool:
        """As soon as the gradient of the same number begins."""
        return now.started == now.steps and not now.finished

    @override
    def may_update(self, now: Counters) -> bool:
        """Once its round is mixed in."""
        return now.rounds > now.steps


class D1d(Dpsgd):
    """D1D: allreduce of weights beside the gradient, which is taken at the last average.

    W[k+1] = W[k] Tu - a g(W[k-1] Tu). Eq. 14 of arXiv 2002.01119 writes g(W[k-1]), its text "the
    model from the previous round of allreduce"; the text is followed here.
    """

    name = "d1d"
    summary = "weight allreduce beside the gradient, which is one round late"
    collective = True
    late = True


@dataclass(frozen=True, kw_only=True)
class Local(Strategy):
    """Post-local SGD: shared gradients at first, then local steps and averages of weights."""

    name = "local"
    summary = "local steps, all weights averaged every few"
    collective = True
    every: int = 8
    """Local steps between averages."""
    synchronous_steps: int = 0
    """Steps of shared gradients before them."""

    @property
    @override
    def shared_steps(self) -> float:
        """Those before the local ones."""
        return self.synchronous_steps

    @override
    def may_start(self, now: Counters) -> bool:
        """After every `every`-th local step."""
        return now.steps == self.synchronous_steps + (now.started + 1) * self.every

    @override
    def may_begin(self, now: Counters) -> bool:
        """Once the average is there."""
        due = max(0, now.steps - self.synchronous_steps) // self.every
        return now.rounds >= due


@dataclass(frozen=True, kw_only=True)
class Adpsgd(Strategy):
    """AD-PSGD: rounds go on beside the gradients, which are applied whenever they are ready."""

    name = "adpsgd"
    summary = "weights mixed with neighbours in a thread beside the gradients"
    synchronous = False
    pace: int = 1
    """Rounds for each gradient. Whoever is ahead starts them and makes its partners take part, so
    all learners together make as many as the fastest needs; if each started its own, a ring of L
    would make L rounds for each gradient."""
    max_staleness: int = 64
    """Versions that a gradient may miss; at the cap the learner's next round waits."""

    @override
    def may_start(self, now: Counters) -> bool:
        """Within its pace, or when a partner waits; never beyond the cap."""
        if now.finished:
            return now.invited
        return now.missed < self.max_staleness and (now.credit > 0 or now.invited)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What a config may ask of a strategy."""

    strategy: str
    pace: int = 1
    max_staleness: int = 64
    every: int = 8
    synchronous_steps: int = 0


def create(choice: Choice) -> Strategy:
    """The strategy of that name.

    Raises:
        UserError: no such strategy.
    """
    match choice.strategy:
        case "ssgd":
            return Ssgd()
        case "dpsgd":
            return Dpsgd()
        case "d1d":
            return D1d()
        case "local":
            return Local(every=choice.every, synchronous_steps=choice.synchronous_steps)
        case "adpsgd":
            return Adpsgd(pace=choice.pace, max_staleness=choice.max_staleness)
    names = ", ".join(kind.name for kind in STRATEGIES)
    raise UserError(f"no strategy '{choice.strategy}'", fix=f"There are: {names}")


STRATEGIES: tuple[type[Strategy], ...] = (Ssgd, Dpsgd, D1d, Local, Adpsgd)
