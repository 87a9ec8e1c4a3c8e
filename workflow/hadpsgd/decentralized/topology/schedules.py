"""Mixing schedules: who takes whose weights, with which weight, in which round.

A schedule depends on its name, the number of learners, the seed and the round's number alone:
every learner computes any round by itself, in any order, and all agree.

    schedule = create("ring", learners=8, seed=1)     # validated, or UserError
    for partner, weight in schedule.round(k).partners(me).items(): ...

It knows nothing of transports: post all sends and receives of a round, then wait (works for every
schedule), or exchange with `Round.order(me)` one after the other, blocking (symmetric rounds):
`validation` has shown that neither can deadlock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from typing_extensions import override

from hadpsgd.decentralized.topology.mixing import MixingSchedule, Over, Round, Takes
from hadpsgd.decentralized.topology.validation import validate
from hadpsgd.errors import UserError

__all__ = ["SCHEDULES", "MixingSchedule", "Over", "Round", "Takes", "create"]


def ring_among(order: Sequence[int]) -> Iterator[tuple[int, Takes]]:
    """Each takes a third of itself and of both neighbours in the cyclic `order`; two: halves."""
    share = 1 / min(3, len(order))
    for place, learner in enumerate(order):
        left, right = order[place - 1], order[(place + 1) % len(order)]
        yield learner, {learner: share, left: share, right: share}


class Ring(MixingSchedule):
    """D-PSGD's and AD-PSGD's ring (E, Eq. 3): 1/3 of left, self and right."""

    name = "ring"
    summary = "thirds of self, left and right"

    @override
    def exchanges(self, k: int) -> Iterator[tuple[int, Takes]]:
        """The ring 0, 1, ..., L-1."""
        return ring_among(range(self.learners))


class RandomRing(MixingSchedule):
    """RAND (E, section 3.1): the ring over a fresh random permutation each round.

    The permutation of round k is drawn by a counter-based generator (Philox) from the seed and
    k: no history, the same in every process. It sorts raw 64-bit draws, whose stream NumPy
    promises not to change between versions (it makes no such promise for `permutation`).
    """

    name = "random-ring"
    summary = "the ring over a fresh permutation each round"

    @property
    @override
    def period(self) -> int | None:
        """Never repeats; with two learners there is only one ring."""
        return None if self.learners > 2 else 1

    @override
    def exchanges(self, k: int) -> Iterator[tuple[int, Takes]]:
        """The ring over permutation number `k`."""
        draws = np.random.Philox(key=self.seed, counter=[0, k, 0, 0]).random_raw(self.learners)
        return ring_among(np.argsort(draws, kind="stable").tolist())


class Pairwise(MixingSchedule):
    """AD-PSGD's averaging of two neighbours on the ring, (w_i + w_j) / 2, by edge colouring.

    A round is a matching, so nobody waits in a cycle. Even L: two colours in turn,
    (0 1)(2 3)... and (1 2)(3 4)...(L-1 0). Odd L: in round k learner k sits idle and the others
    pair up along the ring from k+1 on; over L rounds each learner is idle once and each edge of
    the ring is used (L-1)/2 times.
    """

    name = "pairwise"
    summary = "halves with one ring neighbour at a time"

    @property
    @override
    def period(self) -> int | None:
        """One colour for two learners, two for even L, L rounds for odd L."""
        return self.learners if self.learners % 2 else min(2, self.learners // 2)

    @override
    def exchanges(self, k: int) -> Iterator[tuple[int, Takes]]:
        """Pairs (a, a+1) with a = first, first+2, ..."""
        first = k + 1 if self.learners % 2 else k
        for place in range(first, first + self.learners - 1, 2):
            i, j = place % self.learners, (place + 1) % self.learners
            yield i, {i: 0.5, j: 0.5}
            yield j, {j: 0.5, i: 0.5}


class RandomPartner(MixingSchedule):
    """AD-PSGD's averaging with a partner drawn at random, (w_i + w_j) / 2 (arXiv 1710.06952).

    Asynchronous learners draw partners at their own pace (`strategies.random_partner`) and share
    no rounds. The rounds listed here are what synchronous ones do, and what the others come to if
    all are equally fast: everybody in one pair, drawn afresh each round; odd L: one sits idle.
    """

    name = "random-partner"
    summary = "halves with one partner drawn at random"
    free = True

    @property
    @override
    def period(self) -> int | None:
        """Never repeats; with two learners there is only one pair."""
        return None if self.learners > 2 else 1

    @override
    def exchanges(self, k: int) -> Iterator[tuple[int, Takes]]:
        """Pairs along permutation number `k`, drawn as for the random ring."""
        draws = np.random.Philox(key=self.seed, counter=[0, k, 0, 1]).random_raw(self.learners)
        order = np.argsort(draws, kind="stable").tolist()
        for i, j in zip(order[::2], order[1::2], strict=False):
            yield i, {i: 0.5, j: 0.5}
            yield j, {j: 0.5, i: 0.5}


class Complete(MixingSchedule):
    """Everybody with everybody, 1/L: the matrix Tu of SSGD and D1D (an allreduce)."""

    name = "complete"
    summary = "1/L of everybody"

    @override
    def exchanges(self, k: int) -> Iterator[tuple[int, Takes]]:
        """1/L of each."""
        for i in range(self.learners):
            others = (j for j in range(self.learners) if j != i)
            yield i, dict.fromkeys((i, *others), 1 / self.learners)


class Exponential(MixingSchedule):
    """Static exponential graph: i takes equal shares of itself and of i - 1, i - 2, i - 4, ...

    Directed and circulant, hence doubly stochastic for any L; in-degree ceil(log2 L). Source:
    arXiv 2110.13363 (exponential graphs).
    """

    name = "exponential"
    summary = "equal shares of self and those 1, 2, 4, ... behind (static, directed)"
    symmetric = False

    @override
    def exchanges(self, k: int) -> Iterator[tuple[int, Takes]]:
        """Those 1, 2, 4, ... places behind, all in each round."""
        hops = _powers_of_two(self.learners)
        for i in range(self.learners):
            behind = [(i - hop) % self.learners for hop in hops]
            yield i, dict.fromkeys((i, *behind), 1 / (1 + len(hops)))


class OnePeerExponential(MixingSchedule):
    """One-peer exponential graph: in round k, i takes half of itself and half of i - 2^k.

    Directed; one send and one receive a round; period ceil(log2 L). For L a power of two a
    period is an exact average; for other L it is doubly stochastic and contracts.
    """

    name = "one-peer-exponential"
    summary = "halves with the one 1, 2, 4, ... behind in turn (directed)"
    symmetric = False

    @property
    @override
    def period(self) -> int | None:
        """One round for each power of two below L."""
        return max(1, len(_powers_of_two(self.learners)))

    @override
    def exchanges(self, k: int) -> Iterator[tuple[int, Takes]]:
        """The one 2^k places behind."""
        for i in range(self.learners):
            yield i, {i: 0.5, (i - 2**k) % self.learners: 0.5}


def _powers_of_two(below: int) -> list[int]:
    return [2**power for power in range((below - 1).bit_length())]


SCHEDULES: dict[str, type[MixingSchedule]] = {
    schedule.name: schedule
    for schedule in (
        Ring,
        RandomRing,
        Pairwise,
        RandomPartner,
        Complete,
        Exponential,
        OnePeerExponential,
    )
}
"""The registry: a new schedule is a class above and its name in this line."""


def create(name: str, *, learners: int, seed: int = 0) -> MixingSchedule:
    """A schedule by its name, validated for this number of learners.

    Raises:
        UserError: unknown name, fewer than 2 learners, or a schedule that fails validation.
    """
    if name not in SCHEDULES:
        raise UserError(
            f"unknown mixing schedule '{name}'", fix=f"There are: {', '.join(SCHEDULES)}"
        )
    if learners < 2:
        raise UserError(f"schedule '{name}' needs at least 2 learners, not {learners}")
    schedule = SCHEDULES[name](learners=learners, seed=seed)
    validate(schedule)
    return schedule
