"""W[k+1] = W[k] T - a g(Phi) in plain NumPy float64: what the engine must compute.

Written from arXiv 2002.01119 (E) alone and knowing nothing of the engine, so that the two can be
held against each other. Weights are W [P, L], a learner a column. Gradients come from a callback.
Synchronous algorithms are written out one by one; a run whose order was decided by its timing is
evaluated from the record of its events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from hadpsgd.decentralized.core.events import Event, Join, Mix, Record, Update

Gradient = Callable[[int, int, np.ndarray], np.ndarray]
"""(learner, step, weights [P]) -> gradient [P] of the learner's minibatch number `step`."""
Matrices = Callable[[int], np.ndarray]
"""round -> T [L, L]."""


@dataclass(frozen=True, kw_only=True)
class Sgd:
    """SGD with momentum as torch.optim.SGD defines it: v <- m v + d, w <- w - a v.

    d = g + weight_decay * phi, phi the weights at which g was taken. Nesterov: w - a (d + m v).
    """

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def direction(
        self, gradient: np.ndarray, phi: np.ndarray, velocity: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(what is multiplied by the learning rate, new velocity), of the arguments' shape."""
        descent = gradient + self.weight_decay * phi
        velocity = self.momentum * velocity + descent
        return (descent + self.momentum * velocity if self.nesterov else velocity), velocity


PLAIN = Sgd()


def gradients(gradient: Gradient, step: int, phi: np.ndarray) -> np.ndarray:
    """g(Phi, xi) [P, L]: each learner's gradient at its own column of Phi."""
    return np.stack([gradient(i, step, phi[:, i]) for i in range(phi.shape[1])], axis=1)


def single(start: np.ndarray, gradient: Gradient, rates: Sequence[float], sgd: Sgd) -> np.ndarray:
    """One learner: w[k+1] = w[k] - a g(w[k]); start and result [P]."""
    return ssgd(start[:, None], gradient, rates, sgd)[:, 0]


def ssgd(
    start: np.ndarray, gradient: Gradient, rates: Sequence[float], sgd: Sgd = PLAIN
) -> np.ndarray:
    """Synchronous SGD: the mean gradient for everybody; W [P, L] after len(rates) steps."""
    weights, velocity = start, np.zeros_like(start)
    for k, rate in enumerate(rates):
        mean = gradients(gradient, k, weights).mean(axis=1, keepdims=True)
        direction, velocity = sgd.direction(np.broadcast_to(mean, start.shape), weights, velocity)
        weights = weights - rate * direction
    return weights


def dpsgd(
    start: np.ndarray,
    gradient: Gradient,
    rates: Sequence[float],
    matrices: Matrices,
    sgd: Sgd = PLAIN,
) -> np.ndarray:
    """D-PSGD and, with the matrices of a permuted ring, RAND without delay (E, Eq. 2).

    W[k+1] = W[k] T[k] - a g(W[k]): gradients at the weights before mixing.
    """
    weights, velocity = start, np.zeros_like(start)
    for k, rate in enumerate(rates):
        direction, velocity = sgd.direction(gradients(gradient, k, weights), weights, velocity)
        weights = weights @ matrices(k) - rate * direction
    return weights


def d1d(
    start: np.ndarray,
    gradient: Gradient,
    rates: Sequence[float],
    phi: Literal["own", "mean"],
    sgd: Sgd = PLAIN,
) -> np.ndarray:
    """Delay by one (E, Eq. 14): W[k+1] = W[k] Tu - a g(Phi[k]), the gradient one round late.

    "own": Phi[k] = W[k-1], as Eq. 14 is written. "mean": Phi[k] = W[k-1] Tu, the text's "model
    from the previous round of allreduce". Before the first round there is only W[0].
    """
    weights, velocity = start, np.zeros_like(start)
    uniform = np.full((start.shape[1],) * 2, 1 / start.shape[1])
    late = start
    for k, rate in enumerate(rates):
        at = late if phi == "own" else late @ uniform
        direction, velocity = sgd.direction(gradients(gradient, k, at), at, velocity)
        weights, late = weights @ uniform - rate * direction, weights
    return weights


def local(
    start: np.ndarray,
    gradient: Gradient,
    rates: Sequence[float],
    *,
    every: int,
    synchronous: int = 0,
    sgd: Sgd = PLAIN,
) -> np.ndarray:
    """Post-local SGD: `synchronous` steps of SSGD, then local steps; after every `every`-th of
    these all weights are averaged. Velocities are not.
    """
    weights, velocity = start, np.zeros_like(start)
    for k, rate in enumerate(rates):
        direction = gradients(gradient, k, weights)
        if k < synchronous:
            direction = np.repeat(direction.mean(axis=1, keepdims=True), start.shape[1], axis=1)
        direction, velocity = sgd.direction(direction, weights, velocity)
        weights = weights - rate * direction
        if k >= synchronous and (k - synchronous + 1) % every == 0:
            weights = np.repeat(weights.mean(axis=1, keepdims=True), start.shape[1], axis=1)
    return weights


def diloco(
    start: np.ndarray,
    gradient: Gradient,
    rates: Sequence[float],
    *,
    every: int,
    outer_rate: float,
    outer: Sgd,
    sgd: Sgd = PLAIN,
) -> np.ndarray:
    """DiLoCo (arXiv 2311.08105, Algorithm 1): every `every` steps the outer optimiser makes a step
    with the mean over learners of y - x, y the weights before these steps; all go on from there.
    """
    weights, velocity = start, np.zeros_like(start)
    slow, momentum = start[:, 0], np.zeros(len(start))
    for k, rate in enumerate(rates):
        direction, velocity = sgd.direction(gradients(gradient, k, weights), weights, velocity)
        weights = weights - rate * direction
        if (k + 1) % every == 0:
            change = np.mean(slow[:, None] - weights, axis=1)
            step, momentum = outer.direction(change, slow, momentum)
            slow = slow - outer_rate * step
            weights = np.repeat(slow[:, None], start.shape[1], axis=1)
    return weights


def noloco(
    start: np.ndarray,
    gradient: Gradient,
    rates: Sequence[float],
    pairs: Callable[[int], Sequence[Sequence[int]]],
    *,
    every: int,
    outer_rate: float,
    outer_momentum: float,
    sgd: Sgd = PLAIN,
) -> np.ndarray:
    """NoLoCo (arXiv 2506.10911) as its authors' code has it: `pairs(t)` are the groups of outer
    step t; d_i <- m d_i + a mean(x - y) + a (mean(y) - y_i), means over i's group, and
    y_i <- y_i + d_i.
    """
    weights, velocity = start, np.zeros_like(start)
    slow, delta = start.copy(), np.zeros_like(start)
    for k, rate in enumerate(rates):
        direction, velocity = sgd.direction(gradients(gradient, k, weights), weights, velocity)
        weights = weights - rate * direction
        if (k + 1) % every == 0:
            before = slow.copy()
            for group in pairs(k // every):
                members = list(group)
                change = (weights - before)[:, members].mean(axis=1)
                middle = before[:, members].mean(axis=1)
                for i in members:
                    pull = outer_rate * change + outer_rate * (middle - before[:, i])
                    delta[:, i] = outer_momentum * delta[:, i] + pull
                    slow[:, i] = before[:, i] + delta[:, i]
            weights = slow.copy()
    return weights


def sgp(
    start: np.ndarray,
    gradient: Gradient,
    rates: Sequence[float],
    matrices: Matrices,
    sgd: Sgd = PLAIN,
) -> tuple[np.ndarray, np.ndarray]:
    """Stochastic gradient push (arXiv 1811.10792, Algorithm 1): (x [P, L], push-sum weights [L]).

    `matrices(k)[j, i]` is what j gives i of its x and of its weight; rows sum to 1.
    """
    weights, velocity = start, np.zeros_like(start)
    masses = np.ones(start.shape[1])
    for k, rate in enumerate(rates):
        at = weights / masses
        direction, velocity = sgd.direction(gradients(gradient, k, at), at, velocity)
        weights = (weights - rate * direction) @ matrices(k)
        masses = masses @ matrices(k)
    return weights, masses


def grouped(gradient: Gradient, size: int) -> Gradient:
    """The gradient of a super-learner: the mean over its `size` learners (H-ADPSGD)."""

    def mean(super_learner: int, step: int, weights: np.ndarray) -> np.ndarray:
        members = range(super_learner * size, (super_learner + 1) * size)
        return np.mean([gradient(i, step, weights) for i in members], axis=0)

    return mean


Rounding = Callable[[np.ndarray], np.ndarray]
"""Values [P] -> what a message says of them [P]."""


def bfloat16(values: np.ndarray) -> np.ndarray:
    """To eight significant bits, by way of single precision, both times to the nearest, to even."""
    fraction, exponent = np.frexp(values.astype(np.float32).astype(np.float64))
    return np.ldexp(np.rint(fraction * 2**8), exponent - 8)


def int8(values: np.ndarray) -> np.ndarray:
    """Blocks of 16 as whole numbers of at most 127 times a power of two, the least that could do
    without the limit.
    """
    blocks = values.reshape(-1, 16)
    largest = np.abs(blocks).max(axis=1)
    with np.errstate(divide="ignore"):
        exponent = np.where(largest > 0, np.floor(np.log2(largest)) + 1 - 7, 0)
    unit = np.ldexp(1.0, exponent.astype(int))[:, None]
    return (np.clip(np.rint(blocks / unit), -127, 127) * unit).ravel()


@dataclass
class _Learner:
    versions: list[np.ndarray]
    velocity: np.ndarray
    rounding: Rounding | None = None
    owed: np.ndarray | float = 0.0
    sent: dict[int, np.ndarray] = field(default_factory=dict)

    def message(self, version: int) -> np.ndarray:
        """What was sent of a version: rounded, with what is owed from the messages before."""
        if self.rounding is None:
            return self.versions[version]
        if version not in self.sent:
            assert version > max(self.sent, default=-1)
            wanted = self.versions[version] + self.owed
            self.sent[version] = self.rounding(wanted)
            self.owed = wanted - self.sent[version]
        return self.sent[version]


def evaluate(
    record: Record,
    start: Mapping[int, np.ndarray],
    gradient: Gradient,
    sgd: Sgd = PLAIN,
    rounding: Rounding | None = None,
) -> dict[int, list[np.ndarray]]:
    """Every version of every learner's weights [P], from the record of a run.

    Args:
        record: each learner's events in its own order.
        start: initial weights [P] of each learner.
        gradient: called once for each `Update`, with the weights at which it was taken.
        sgd: momentum, per learner; mixing leaves it alone.
        rounding: of weights on their way; a mix is made of messages, the learner's own too.

    Raises:
        ValueError: an event needs a version that never comes to be.
    """
    learners = {
        i: _Learner([w.astype(np.float64)], np.zeros(w.shape), rounding) for i, w in start.items()
    }
    waiting = {i for i in record if record[i]}
    while waiting:
        moved = False
        for i in sorted(waiting):
            while (done := len(learners[i].versions) - 1) < len(record[i]):
                event = record[i][done]
                if not _ready(event, learners):
                    break
                learners[i].versions.append(_apply(event, i, learners, gradient, sgd))
                moved = True
            else:
                waiting.discard(i)
        if not moved:
            i = min(waiting)
            event = record[i][len(learners[i].versions) - 1]
            raise ValueError(f"learner {i} cannot go on: {event} needs a version that never comes")
    return {i: learner.versions for i, learner in learners.items()}


def _ready(event: Event, learners: Mapping[int, _Learner]) -> bool:
    if isinstance(event, Mix):
        return all(version < len(learners[j].versions) for j, _, version in event.takes)
    if isinstance(event, Join):
        return event.version < len(learners[event.source].versions)
    return True


def _apply(
    event: Event, i: int, learners: Mapping[int, _Learner], gradient: Gradient, sgd: Sgd
) -> np.ndarray:
    me = learners[i]
    now = me.versions[-1]
    match event:
        case Update(rate=0.0):
            return now
        case Update():
            phi = me.versions[event.read]
            direction, me.velocity = sgd.direction(gradient(i, event.step, phi), phi, me.velocity)
            return now - event.rate * direction
        case Mix():
            own = me.message(event.own) if event.takes else now
            taken = [w * (learners[j].message(v) - own) for j, w, v in event.takes]
            return now + np.sum(taken, axis=0) if taken else now
        case Join():
            me.velocity = np.zeros_like(me.velocity)
            return learners[event.source].versions[event.version]
