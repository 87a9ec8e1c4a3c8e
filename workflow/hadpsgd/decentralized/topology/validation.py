"""Checks of a mixing schedule, made before anything runs.

For each round of the period (a random schedule: of its first rounds)
- doubly stochastic: no negative weight, rows and columns of T sum to 1 (so the mean is kept),
- as often as it should: a learner sends as often as it receives, and takes part as often in a
  period as any other living learner,
- free of deadlock: the peer of every send receives in the same round; symmetric rounds, done as
  blocking exchanges one by one in `Round.order`, run to their end with nothing buffered,
and over the period
- connected: weights of any learner reach any other,
- contracting: the product of the rounds brings learners together (a schedule that only swaps
  weights is connected and doubly stochastic, yet never reaches consensus).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import reduce

import numpy as np

from hadpsgd.decentralized.topology.mixing import MixingSchedule, Over, Round
from hadpsgd.errors import UserError

RANDOM_ROUNDS = 32
"""Rounds of a random schedule that are checked: of four learners in pairs, 8 rounds are all alike
for one seed in 2000."""
TOLERANCE = 1e-12


def validate(schedule: MixingSchedule) -> None:
    """Check a schedule.

    Raises:
        UserError: names the schedule, the round, the learner and what is wrong.
    """
    where = f"mixing schedule '{schedule.name}' with {schedule.learners} learners"
    alive: Sequence[int] = (
        schedule.alive if isinstance(schedule, Over) else range(schedule.learners)
    )
    rounds = checked_rounds(schedule)
    for k, current in enumerate(rounds):
        fault = (
            shape_fault(current, schedule)
            or stochastic_fault(current.matrix())
            or peers_fault(current)
        )
        if fault:
            raise UserError(fault, where=f"{where}, round {k}")
    fault = (
        turns_fault(rounds, alive, random=schedule.period is None)
        or (deadlock_fault(rounds) if schedule.symmetric else None)
        or consensus_fault(rounds, alive)
    )
    if fault:
        raise UserError(fault, where=where)


def checked_rounds(schedule: MixingSchedule) -> list[Round]:
    """The rounds of a period; of a random schedule, its first ones."""
    return [schedule.round(k) for k in range(schedule.period or RANDOM_ROUNDS)]


def shape_fault(current: Round, schedule: MixingSchedule) -> str | None:
    """Number of learners, ranks, and symmetry as announced."""
    if current.learners != schedule.learners:
        return f"lists {current.learners} learners"
    for i, takes in enumerate(current.takes):
        unknown = [j for j in takes if not 0 <= j < schedule.learners]
        if unknown:
            return f"learner {i} takes weights of learner {unknown[0]}, which does not exist"
    if schedule.symmetric and not current.symmetric:
        return "is not symmetric, though the schedule says so"
    return None


def stochastic_fault(matrix: np.ndarray) -> str | None:
    """Doubly stochastic, or which learner is not."""
    if not np.isfinite(matrix).all() or matrix.min() < 0:
        return "a weight is negative or not a number"
    for axis, what in ((0, "takes"), (1, "gives")):
        sums = matrix.sum(axis=axis)
        worst = int(np.abs(sums - 1).argmax())
        if abs(sums[worst] - 1) > TOLERANCE:
            return f"learner {worst} {what} {sums[worst]:.6g} in all, not 1 (not doubly stochastic)"
    return None


def peers_fault(current: Round) -> str | None:
    """Every send has its receive in the same round, and as many of one as of the other."""
    sends = {(i, j) for i in range(current.learners) for j in current.sends(i)}
    receives = {(j, i) for i in range(current.learners) for j in current.receives(i)}
    for i, j in sorted(sends ^ receives):
        if (i, j) in sends:
            return f"learner {i} sends to {j}, which does not receive from it"
        return f"learner {j} waits for {i}, which does not send to it"
    for i in range(current.learners):
        out, into = len(current.sends(i)), len(current.receives(i))
        if out != into:
            return f"learner {i} sends {out} times and receives {into} times"
    return None


def turns_fault(rounds: list[Round], alive: Sequence[int], *, random: bool) -> str | None:
    """Every living learner takes part equally often; the others never do."""
    turns = np.array([sum(len(r.receives(i)) for r in rounds) for i in range(rounds[0].learners)])
    dead = np.setdiff1d(np.arange(rounds[0].learners), alive)
    if turns[dead].any():
        return f"learner {dead[turns[dead] > 0][0]} is dead and yet takes part"
    living = turns[list(alive)]
    if not random and living.min() != living.max():
        few, many = alive[int(living.argmin())], alive[int(living.argmax())]
        return (
            f"learner {few} exchanges {living.min()} times in a period, "
            f"learner {many} {living.max()} times"
        )
    return None


def deadlock_fault(rounds: list[Round]) -> str | None:
    """Run all rounds as blocking pairwise exchanges without buffers or barriers.

    Each learner works through its exchanges in order; one is done when both ends are at it.
    """
    learners = rounds[0].learners
    todo = [
        deque((k, j) for k, current in enumerate(rounds) for j in current.order(i))
        for i in range(learners)
    ]
    ready = deque(range(learners))
    while ready:
        i = ready.popleft()
        while todo[i]:
            k, j = todo[i][0]
            if not todo[j] or todo[j][0] != (k, i):
                break
            todo[i].popleft()
            todo[j].popleft()
            ready.append(j)
    stuck = [i for i in range(learners) if todo[i]]
    if stuck:
        k, j = todo[stuck[0]][0]
        return f"deadlock: learner {stuck[0]} waits for {j} in round {k} for ever"
    return None


def consensus_fault(rounds: list[Round], alive: Sequence[int]) -> str | None:
    """Connected and contracting on the living learners."""
    living = np.ix_(alive, alive)
    matrices = [current.matrix()[living] for current in rounds]
    links = np.sum(matrices, axis=0) > 0
    together = reached(links) & reached(links.T)
    if not together.all():
        apart = alive[int(np.flatnonzero(~together)[0])]
        return f"not connected: learners {alive[0]} and {apart} never reach each other"
    product = reduce(np.matmul, matrices)
    radius = np.abs(np.linalg.eigvals(product - 1 / len(alive))).max()
    if radius > 1 - 1e-9:
        return "never reaches consensus: its rounds permute weights without averaging them"
    return None


def reached(links: np.ndarray) -> np.ndarray:
    """Whom the first learner reaches over links [from, to], itself included; bool [learners]."""
    seen = np.zeros(len(links), dtype=bool)
    seen[0] = True
    while (wider := seen | links[seen].any(axis=0)).sum() > seen.sum():
        seen = wider
    return seen
