"""How fast a mixing schedule brings learners together, measured and as the papers bound it.

Consensus after k rounds is ||T1 T2 ... Tk - Tu|| (spectral norm), Tu = 1/L everywhere: 1 before
mixing, 0 when all learners are equal. E is arXiv 2002.01119.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

import numpy as np

from hadpsgd.decentralized.topology.mixing import MixingSchedule
from hadpsgd.decentralized.topology.schedules import RandomRing, Ring
from hadpsgd.errors import UserError

SAMPLES = 10
"""Sequences of a random schedule over which consensus is averaged."""
STRETCH = 10**6
"""Rounds from the start of one such sequence to the next."""
MOST_ROUNDS = 10**9


def uniform(learners: int) -> np.ndarray:
    """Tu, float64 [L, L]: 1/L everywhere."""
    return np.full((learners, learners), 1 / learners)


def distance(product: np.ndarray) -> float:
    """||product - Tu||, spectral norm."""
    return float(np.linalg.norm(product - uniform(len(product)), ord=2))


def ring_rho(learners: int) -> float:
    """Second eigenvalue of the ring of thirds, 1/3 + 2/3 cos(2 pi / L) (E); L = 2 (halves): 0."""
    return 1 / 3 + 2 / 3 * math.cos(2 * math.pi / learners) if learners > 2 else 0.0


def ring_bound(*, learners: int, rounds: int) -> float:
    """||T0^k - Tu|| <= rho^k (E)."""
    return ring_rho(learners) ** rounds


def random_ring_bound(*, learners: int, rounds: int) -> float:
    """E||T1 ... Tk - Tu|| <= sqrt(L-1) / sqrt(3)^k (E, Eq. 12)."""
    return math.sqrt(learners - 1) * 3 ** (-rounds / 2)


def mean_square(schedule: MixingSchedule, samples: int) -> np.ndarray:
    """Mean of T'T over the first `samples` rounds, float64 [L, L]."""
    total = np.zeros((schedule.learners, schedule.learners))
    for k in range(samples):
        matrix = schedule.round(k).matrix()
        total += matrix.T @ matrix
    return total / samples


def consensus_curve(schedule: MixingSchedule, *, rounds: int, samples: int = SAMPLES) -> np.ndarray:
    """Consensus after 0, 1, ..., `rounds` rounds, float64 [rounds + 1].

    A random schedule is averaged over `samples` stretches of its own sequence.
    """
    curves = np.empty((samples if schedule.period is None else 1, rounds + 1))
    for sample, curve in enumerate(curves):
        start = sample * STRETCH
        product = np.eye(schedule.learners)
        curve[0] = distance(product)
        for k in range(rounds):
            product = product @ schedule.round(start + k).matrix()
            curve[k + 1] = distance(product)
    return curves.mean(axis=0)


def pushed_apart(schedule: MixingSchedule) -> float:
    """How far from their mean learners are in the long run, if each takes independent steps.

    Every round each learner moves by a vector of unit mean square, all independent, and then all
    mix. The mean square of the distance is sum over k >= 1 of ||T1 ... Tk - Tu||_F^2 / L; its root
    is returned. Of a random schedule E[T'T], of a periodic one the product of a period decides;
    0 where each round averages over all.
    """
    learners = schedule.learners
    if schedule.period is None:
        second = measure(schedule, target=0.5).rho ** 2
        return math.sqrt((learners - 1) / learners * second / (1 - second))
    apart = np.eye(learners) - uniform(learners)
    matrices = [schedule.round(k).matrix() @ apart for k in range(schedule.period)]
    period, steps = np.eye(learners), np.zeros((learners, learners))
    for matrix in matrices:  # covariance C becomes T (C + 1) T' in a round
        period, steps = matrix @ period, matrix @ (steps + np.eye(learners)) @ matrix.T
    # C = P C P' + S, summed by doubling: S + P S P', then with P P in place of P, and so on
    while np.abs(period).max() > 1e-12:
        steps, period = steps + period @ steps @ period.T, period @ period
    return math.sqrt(float(np.trace(steps)) / learners)


@dataclass(frozen=True, kw_only=True)
class Mixing:
    """How a schedule mixes."""

    rho: float
    """Factor by which the distance to consensus shrinks a round, in the long run."""
    rounds: int
    """Rounds until consensus is below the target."""

    @property
    def gap(self) -> float:
        """Spectral gap 1 - rho."""
        return 1 - self.rho


def measure(schedule: MixingSchedule, target: float = 1e-3) -> Mixing:
    """Rate and rounds to `target` of a schedule.

    Periodic: rho is the spectral radius of (product of a period - Tu), a round. Random: in mean
    square, the root of the second eigenvalue of E[T'T]; rounds are those of the mean consensus.
    """
    if schedule.period is None:
        return _measure_random(schedule, target)
    matrices = [schedule.round(k).matrix() for k in range(schedule.period)]
    product = reduce(np.matmul, matrices)
    radius = float(np.abs(np.linalg.eigvals(product - uniform(schedule.learners))).max())
    # a period that averages exactly is nilpotent apart from rounding
    rho = 0.0 if distance(product) < 1e-12 else radius ** (1 / schedule.period)
    return Mixing(rho=rho, rounds=_rounds_periodic(matrices, product, target))


def _measure_random(schedule: MixingSchedule, target: float) -> Mixing:
    # ranks are permuted uniformly, so E[T'T] has one value on the diagonal and one off it, and
    # its rows sum to 1
    diagonal = np.trace(mean_square(schedule, SAMPLES)) / schedule.learners
    second = diagonal - (1 - diagonal) / (schedule.learners - 1)
    rounds = 8
    while (curve := consensus_curve(schedule, rounds=rounds))[-1] > target:
        rounds *= 2
    return Mixing(rho=math.sqrt(max(0.0, second)), rounds=int(np.argmax(curve <= target)))


def _rounds_periodic(matrices: list[np.ndarray], product: np.ndarray, target: float) -> int:
    """First k with ||T1 ... Tk - Tu|| <= target: whole periods by doubling, then round by round.

    The norm never grows from round to round (T is doubly stochastic), so bisection is right.
    """
    powers = [product]
    while distance(powers[-1]) > target:
        powers.append(powers[-1] @ powers[-1])
        if len(powers) * math.log(2) > math.log(MOST_ROUNDS):
            what = f"no consensus of {target:g} within {MOST_ROUNDS} periods"
            where = f"{len(product)} learners"
            raise UserError(what, where=where, fix="Ask for less, or take another schedule")
    done, periods = np.eye(len(product)), 0
    for exponent in reversed(range(len(powers))):
        further = done @ powers[exponent]
        if distance(further) > target:
            done, periods = further, periods + 2**exponent
    rounds = periods * len(matrices)
    for matrix in matrices:
        if distance(done) <= target:
            break
        done, rounds = done @ matrix, rounds + 1
    return rounds


def paper_rounds(schedule: MixingSchedule, target: float = 1e-3) -> int | None:
    """Rounds after which the paper's bound promises `target`; None where it gives none."""
    if isinstance(schedule, Ring):
        rho = ring_rho(schedule.learners)
        return 1 if rho <= target else math.ceil(math.log(target) / math.log(rho))
    if isinstance(schedule, RandomRing):
        start = math.log(random_ring_bound(learners=schedule.learners, rounds=0))
        return math.ceil((start - math.log(target)) / (math.log(3) / 2))
    return None


def models_sent(schedule: MixingSchedule) -> float:
    """Copies of the model that a learner sends a round (mean over a period).

    The complete graph is an allreduce: 2 (L-1)/L copies by a ring of reduce-scatter and
    all-gather, not L - 1 copies.
    """
    if schedule.name == "complete":
        return 2 * (schedule.learners - 1) / schedule.learners
    rounds = [schedule.round(k) for k in range(schedule.period or 1)]
    sends = sum(len(r.sends(i)) for r in rounds for i in range(schedule.learners))
    return sends / len(rounds) / schedule.learners
