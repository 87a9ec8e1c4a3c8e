"""Teams that a cluster can hold, their hours, and which of them to take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hadpsgd.planning.cluster import Cluster
from hadpsgd.planning.evidence import largest_batch, objections
from hadpsgd.planning.model import STRATEGIES, Step, Strategy, Team, Work, hours, step

UNDECIDED = 0.10
"""Differences of hours that the model cannot tell: its errors against the papers are as large."""
STRAGGLER = 2.0
"""How many times slower one learner is where plans are compared with one."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A team with what is predicted of it."""

    team: Team
    step: Step
    hours: float
    hours_with_straggler: float
    """The same with one learner `STRAGGLER` times slower than the others."""
    objections: tuple[str, ...]
    """Why nobody has shown that it trains as well as one learner; empty where they have."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What a cluster can do with the work."""

    best: Plan
    """The one to take."""
    plans: tuple[Plan, ...]
    """The best of every strategy, in the order of `STRATEGIES`."""
    level: Plan | None = None
    """ssgd with the learners and the batch of the one to take, where the papers give it less."""

    def of(self, strategy: Strategy) -> Plan | None:
        """The best plan of a strategy; None where there is none."""
        return next((plan for plan in self.plans if plan.team.strategy == strategy), None)


def predict(team: Team, cluster: Cluster, work: Work) -> Plan:
    """All that the model says of a team."""
    seen = step(team, cluster, work.model_bytes)
    straggling = replace(cluster, slowest=max(cluster.slowest, STRAGGLER))
    return Plan(
        team=team,
        step=seen,
        hours=hours(team, cluster, work),
        hours_with_straggler=hours(team, straggling, work),
        objections=tuple(objections(team, seen.rounds)),
    )


def advise(
    cluster: Cluster, work: Work, *, batch: int | None = None, overlap: bool = True
) -> Advice:
    """The best team of each strategy, and of them the one to take.

    Teams that the papers' experiments carry go first, then the hours decide. Of those within
    `UNDECIDED` of the fastest, the one that loses least to a straggler is taken.

    Args:
        cluster: with all nodes that could be had; fewer are taken where more gain nothing.
        work: what is trained.
        batch: total batch; by default the largest that the papers and the data allow.
        overlap: whether gradients are sent while the backward pass still runs.
    """
    plans = []
    for strategy in STRATEGIES:
        found = [
            predict(team, cluster, work)
            for team in teams(strategy, cluster, work, batch=batch, overlap=overlap)
        ]
        if found:
            plans.append(_smallest(found))
    known = [plan for plan in plans if not plan.objections] or plans
    fastest = min(plan.hours for plan in known)
    close = [plan for plan in known if plan.hours <= (1 + UNDECIDED) * fastest]
    best = min(close, key=lambda plan: (plan.hours_with_straggler, plan.hours))
    level = _level(best.team, cluster, work)
    return Advice(best=best, plans=tuple(plans), level=level)


def _level(best: Team, cluster: Cluster, work: Work) -> Plan | None:
    """What ssgd would need if it bore the same batch: on small corpora here no other bore more."""
    if best.batch <= largest_batch("ssgd", work.subsequences) or best.learners == 1:
        return None
    team = replace(best, strategy="ssgd", super_learner=1, schedule=_schedule("ssgd"))
    return predict(team, cluster, work)


def _smallest(found: Sequence[Plan]) -> Plan:
    """Of one strategy the plan with the fewest learners among those as fast as the fastest."""
    known = [plan for plan in found if not plan.objections] or found
    fastest = min(plan.hours for plan in known)
    return min(
        (plan for plan in known if plan.hours <= (1 + UNDECIDED) * fastest),
        key=lambda plan: (plan.team.learners, plan.hours),
    )


def teams(
    strategy: Strategy, cluster: Cluster, work: Work, *, batch: int | None, overlap: bool
) -> Iterator[Team]:
    """Teams of a strategy: doublings of nodes, and of GPUs on one node, up to all there are."""
    most = batch or largest_batch(strategy, work.subsequences)
    for learners in _sizes(cluster):
        if learners > most or (learners == 1) != (strategy == "single"):
            continue
        size = _super_learner(strategy, cluster, learners)
        if strategy == "hadpsgd" and (size == 1 or cluster.gpus % size or learners % size):
            continue
        yield Team(
            strategy=strategy,
            batch=most // learners * learners,
            learners=learners,
            super_learner=size,
            schedule=_schedule(strategy),
            overlap=overlap,
        )


def _sizes(cluster: Cluster) -> list[int]:
    on_node = {*_doublings(cluster.gpus)}
    return sorted(on_node | {nodes * cluster.gpus for nodes in _doublings(cluster.nodes)})


def _doublings(most: int) -> list[int]:
    return [*(2**power for power in range(most.bit_length()) if 2**power < most), most]


def _super_learner(strategy: Strategy, cluster: Cluster, learners: int) -> int:
    """Learners of a super-learner: those of a node (H), of a node alone half of its learners."""
    if strategy != "hadpsgd":
        return 1
    return cluster.gpus if learners > cluster.gpus else max(1, learners // 2)


def _schedule(strategy: Strategy) -> str:
    return {"rand": "random-ring", "d1d": "complete", "ssgd": "complete"}.get(strategy, "ring")
