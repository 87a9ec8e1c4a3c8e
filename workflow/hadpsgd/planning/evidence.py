"""How far the papers' experiments carry each strategy: beyond, a plan is a guess.

H is arXiv 1907.05701, E 2002.01119, S 1904.04956.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from hadpsgd.planning.model import Strategy, Team


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a strategy was shown to do without a worse word error rate."""

    batch: int
    """Largest total batch."""
    nodes: float
    """Most learners that mix weights or average gradients; of hadpsgd, super-learners."""
    why: str


RING = "on a ring the word error rate rises beyond 16 learners (E, Table 2: 7.6, at 64 8.1)"
EVIDENCE: Mapping[Strategy, Evidence] = {
    "single": Evidence(batch=256, nodes=1, why="the baseline's batch is 256 (E)"),
    "ssgd": Evidence(
        batch=2560,
        nodes=math.inf,
        why="averaged gradients trained well up to a batch of 2560 (S), and converge up to 4096",
    ),
    "d1d": Evidence(
        batch=8192, nodes=128, why="D1D was trained with up to 128 learners at a batch of 8192 (E)"
    ),
    "dpsgd": Evidence(batch=8192, nodes=16, why=RING),
    "adpsgd": Evidence(batch=8192, nodes=16, why=RING),
    "rand": Evidence(
        batch=8192,
        nodes=32,
        why="RAND's word error rate is 7.7 at 32 learners and 7.8 at 64, one learner's 7.5 (E)",
    ),
    "hadpsgd": Evidence(batch=8192, nodes=16, why=RING),
}
FEWEST_UPDATES = 600
"""Updates of an epoch, at least: 300 hours at a batch of 8192, the papers' smallest case, make
628. With fewer the batch is made smaller."""


def largest_batch(strategy: Strategy, subsequences: float) -> int:
    """The total batch that the papers and the amount of speech allow, 1 or more."""
    return max(1, min(EVIDENCE[strategy].batch, int(subsequences / FEWEST_UPDATES)))


def objections(team: Team, rounds: float) -> list[str]:
    """Why nobody has shown that a team trains as well as one learner; empty where they have.

    Args:
        team: who trains how.
        rounds: of mixing for each gradient.
    """
    known = EVIDENCE[team.strategy]
    found = []
    if team.learners // team.super_learner > known.nodes:
        found.append(known.why)
    if team.batch > known.batch:
        found.append(f"a batch above {known.batch}: {known.why}")
    if team.strategy in ("adpsgd", "rand", "hadpsgd") and rounds < 1:
        found.append(f"the links carry only {rounds:.2f} rounds of mixing for each gradient")
    return found
