"""Advice as text: a table of plans, the reasons for the one to take, its section of a config."""

from __future__ import annotations

from hadpsgd.config.settings import LearningRate
from hadpsgd.planning.cluster import Cluster
from hadpsgd.planning.evidence import EVIDENCE
from hadpsgd.planning.model import Step, Work
from hadpsgd.planning.recommend import STRAGGLER, UNDECIDED, Advice, Plan
from hadpsgd.training.rate import scaled

WARM_UP_EPOCHS = 10
"""Epochs of warm-up where a batch is larger than the baseline's, of the papers' 16."""
MOST_LEARNERS = 256
"""Of a config's run."""
HEADER = (
    "strategy",
    "learners",
    "super",
    "schedule",
    "batch",
    "ms/step",
    "of it waiting",
    "exchange",
    "mixes/step",
    "hours",
    f"one {STRAGGLER:g}x slower",
    "shown by the papers",
)


def choice(plan: Plan) -> str:
    """What to take, in one line."""
    team = plan.team
    if team.learners == 1:
        return f"Take one learner, batch {team.batch}: {plan.hours:.2f} hours."
    sizes = f"{team.learners} learners"
    if team.super_learner > 1:
        sizes = f"{team.learners // team.super_learner} super-learners of {team.super_learner}"
    return (
        f"Take {team.strategy}: {sizes}, schedule {team.schedule}, batch {team.batch} "
        f"({team.own_batch:g} a learner), {plan.hours:.2f} hours."
    )


def rows(advice: Advice) -> list[list[str]]:
    """Header and one row a strategy, cells as text."""
    return [list(HEADER), *(_row(plan) for plan in advice.plans)]


def _row(plan: Plan) -> list[str]:
    team, step = plan.team, plan.step
    return [
        team.strategy,
        str(team.learners),
        str(team.super_learner),
        team.schedule if team.learners > 1 else "-",
        str(team.batch),
        f"{1000 * step.seconds:.1f}",
        _share(step.waiting, step),
        _share(step.exchange, step),
        f"{step.rounds:.2f}" if step.rounds else "-",
        f"{plan.hours:.2f}",
        f"{plan.hours_with_straggler:.2f}",
        "no" if plan.objections else "yes",
    ]


def _share(seconds: float, step: Step) -> str:
    return f"{100 * seconds / step.seconds:.0f} %"


def reasons(advice: Advice, cluster: Cluster) -> list[str]:
    """Sentences: why this strategy, this size, this batch, and what the others lack."""
    best = advice.best
    found = [*_of_choice(advice), *_of_size(best, cluster), *_of_ssgd(advice)]
    found += [
        f"{plan.team.strategy} with {plan.team.learners} learners is left out: {why}."
        for plan in advice.plans
        if plan is not best
        for why in plan.objections
    ]
    found += [f"Beyond the papers: {why}." for why in best.objections]
    return found


def _of_choice(advice: Advice) -> list[str]:
    best, single = advice.best, advice.of("single")
    name = best.team.strategy
    found = []
    if len(advice.plans) == 1:
        found.append("There is one GPU, or too little speech for a batch of several learners.")
    if single and best is not single:
        found.append(
            f"{name} is {single.hours / best.hours:.1f}x as fast as one learner with a batch of "
            f"{single.team.batch}."
        )
    others = [
        plan
        for plan in advice.plans
        if plan is not best and not plan.objections and plan.hours <= (1 + UNDECIDED) * best.hours
    ]
    for plan in others:
        gain = plan.hours_with_straggler / best.hours_with_straggler
        found.append(
            f"{plan.team.strategy} needs {plan.hours:.2f} h: the model cannot tell differences of "
            f"{100 * UNDECIDED:.0f} %. With one learner {STRAGGLER:g}x slower {name} needs "
            f"{best.hours_with_straggler:.2f} h, {plan.team.strategy} {gain:.2f}x that."
        )
    return found


def _of_size(best: Plan, cluster: Cluster) -> list[str]:
    team = best.team
    nodes, on_node = cluster.spread(team.learners)
    found = []
    if team.strategy == "hadpsgd":
        count = team.learners // team.super_learner
        whole = " (all of a node)" if team.super_learner == on_node else ""
        found.append(
            f"Super-learners of {team.super_learner}{whole}: gradients are averaged on the links "
            f"inside a node, and the ring has {count} members instead of {team.learners}; "
            f"{EVIDENCE['adpsgd'].why}. A node sends two models a round, however many GPUs it has."
        )
    if nodes < cluster.nodes or on_node < cluster.gpus:
        found.append(
            f"{nodes} of {cluster.nodes} nodes are used, {team.learners} of "
            f"{cluster.nodes * cluster.gpus} GPUs: with more, the exchange and the fixed part of a "
            f"step ({cluster.compute.half_batch:.0f} subsequences' worth) outweigh what smaller "
            "shares of the batch gain, or nobody has shown that so many train well."
        )
    return found


def _of_ssgd(advice: Advice) -> list[str]:
    best, ssgd = advice.best, advice.of("ssgd")
    if ssgd is None or best is ssgd or best.team.learners == 1:
        return []
    found = [
        f"ssgd stops scaling at its batch: {EVIDENCE['ssgd'].why}, so with "
        f"{ssgd.team.learners} learners each has {ssgd.team.own_batch:.0f} subsequences a step, "
        f"{100 * (1 - ssgd.step.compute / ssgd.step.seconds):.0f} % of the step is waiting and "
        f"exchange, and an epoch has {best.team.batch / ssgd.team.batch:.1f}x the steps of "
        f"{best.team.strategy}'s: {ssgd.hours:.2f} h."
    ]
    if level := advice.level:
        found.append(
            "That it bears a smaller batch is the papers' finding; on small corpora here it bore "
            f"no smaller one (docs/benchmarks/paper.md). With {level.team.batch} it would need "
            f"{level.hours:.2f} h, {level.hours_with_straggler:.2f} h with one learner "
            f"{STRAGGLER:g}x slower: compare both on your data for an epoch or two."
        )
    return found


def learning_rate(batch: int) -> LearningRate:
    """The papers' rule for a total batch."""
    base = LearningRate()
    return base.model_copy(
        update={"warmup_epochs": float(WARM_UP_EPOCHS if batch > base.base_batch else 0)}
    )


def rate_rule(batch: int) -> str:
    """The learning rate in one sentence."""
    rule = learning_rate(batch)
    top = scaled(rule, batch)
    end = f"then x{rule.anneal_factor:.3f} every epoch after epoch {rule.anneal_after:.0f}"
    if rule.warmup_epochs:
        return (
            f"Learning rate: from {rule.base:g} up to {top:.3g} ({rule.base:g} at "
            f"{rule.base_batch}, scaled with the batch) in {rule.warmup_epochs:.0f} epochs, {end}."
        )
    return f"Learning rate: {top:.3g}, {end}."


def config(plan: Plan, work: Work) -> list[str]:
    """The section `training` of a config, as lines of YAML."""
    team, rule = plan.team, learning_rate(plan.team.batch)
    lines = [
        "training:",
        f"  epochs: {max(1, round(work.epochs))}",
        f"  batch: {team.batch}",
        f"  learning_rate: {{base: {rule.base:g}, base_batch: {rule.base_batch}, "
        f"warmup_epochs: {rule.warmup_epochs:g}}}",
        "  runs:",
        f"    - strategy: {team.strategy}",
    ]
    if team.learners > 1:
        lines.append(f"      learners: {team.learners}")
    if team.super_learner > 1:
        lines.append(f"      super_learner: {team.super_learner}")
    if team.learners > MOST_LEARNERS:
        lines.append(f"      # a config allows {MOST_LEARNERS} learners at most")
    return lines
