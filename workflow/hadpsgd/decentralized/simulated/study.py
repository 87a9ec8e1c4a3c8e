"""Several strategies in simulated time on one problem: what each reaches, as a table and a plot."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hadpsgd.decentralized.core.sgd import Sgd
from hadpsgd.decentralized.network.speeds import ComputeTimes, LinkTimes
from hadpsgd.decentralized.simulated.node import refuse
from hadpsgd.decentralized.simulated.simulation import Setting, Simulation
from hadpsgd.decentralized.simulated.toy import Toy
from hadpsgd.decentralized.strategies import registry
from hadpsgd.decentralized.strategies.registry import Choice
from hadpsgd.decentralized.strategies.strategy import UNROUNDED, check
from hadpsgd.decentralized.topology.schedules import create
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_file


@dataclass(frozen=True, kw_only=True)
class Contest:
    """What all contestants share."""

    learners: int
    seconds: float
    """Simulated."""
    compute: ComputeTimes
    links: LinkTimes
    model_bytes: float
    super_learner: int = 1
    """Learners of a super-learner, for hadpsgd."""
    inside: LinkTimes | None = None
    """Links among the learners of a super-learner; those of `links` if None."""
    deaths: Mapping[int, float] = field(default_factory=dict)
    """Learner -> the moment at which it dies, and its super-learner with it."""
    returns: Mapping[int, float] = field(default_factory=dict)
    """Learner that dies -> the moment at which its super-learner is started again."""
    batch: int = 32
    """Of a learner."""
    rate: float = 0.2
    sgd: Sgd = field(default_factory=Sgd)
    pace: int = 1
    max_staleness: int = 64
    every: int = 8
    """Local steps between averages, for local."""
    wire: str = UNROUNDED
    """How weights are rounded on their way, by strategies that can."""
    seed: int = 1
    points: int = 60
    """Moments at which losses are measured."""


@dataclass(kw_only=True)
class Outcome:
    """What one strategy did."""

    name: str
    schedule: str
    size: int = 1
    """Learners of a node."""
    moments: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    """Held out, of the learners' mean."""
    consensus: list[float] = field(default_factory=list)
    """Root mean square distance of the learners from their mean."""
    updates: list[int] = field(default_factory=list)
    """Of each node."""
    died: Sequence[int] = ()
    """Nodes that did."""
    mixes: float = 0.0
    """Rounds for each update, mean over the nodes."""
    staleness: list[int] = field(default_factory=list)
    exposed: float = 0.0
    """Share of the time in which gradients waited for communication."""
    sent: float = 0.0
    """Models sent by a node for each of its updates."""
    healed: dict[int, float | None] = field(default_factory=dict)
    """Node that died -> seconds until the last of the others goes on without it, infinite if it did
    not by the end; None where each parts with the dead by itself."""


def contestant(name: str, contest: Contest) -> tuple[Setting, Outcome]:
    """Settings of `STRATEGY` or `STRATEGY:SCHEDULE`.

    Raises:
        UserError: no such strategy or schedule, or they do not fit.
    """
    kind, _, schedule = name.partition(":")
    choice = Choice(
        strategy=kind,
        pace=contest.pace,
        max_staleness=contest.max_staleness,
        every=contest.every,
        wire=contest.wire,
    )
    strategy = registry.create(choice)
    size = contest.super_learner if registry.STRATEGIES[kind].of_super_learners else 1
    if contest.learners % size:
        raise UserError(f"{contest.learners} learners are no super-learners of {size}")
    schedule = schedule or (strategy.default_schedule if strategy.mixes else "complete")
    plan = create(schedule, learners=contest.learners // size, seed=contest.seed)
    if not strategy.mixes and schedule != "complete":
        raise UserError(f"strategy {kind} averages over all learners, not over {schedule}")
    check(strategy, plan, learners=contest.learners, size=size)
    inside = contest.inside or LinkTimes(
        latency=contest.links.latency, bandwidth=contest.links.bandwidth
    )
    setting = Setting(
        strategy=strategy,
        schedule=plan,
        compute=contest.compute,
        links=contest.links,
        size=size,
        sgd=contest.sgd,
        rate=lambda _: contest.rate,
        model_bytes=contest.model_bytes,
        inside_seconds=inside.allreduce(range(size), contest.model_bytes) if size > 1 else 0.0,
        deaths=of_nodes(contest.deaths, size),
        returns=of_nodes(contest.returns, size),
    )
    refuse(setting)
    return setting, Outcome(name=name, schedule=schedule, size=size)


def of_nodes(moments: Mapping[int, float], size: int) -> dict[int, float]:
    """Of the first of a node's learners for which there is one."""
    nodes: dict[int, float] = {}
    for learner, moment in moments.items():
        nodes[learner // size] = min(moment, nodes.get(learner // size, math.inf))
    return nodes


def play(name: str, contest: Contest) -> Outcome:
    """Simulate one contestant for the contest's time."""
    setting, outcome = contestant(name, contest)
    problem = Toy(batch=contest.batch, seed=contest.seed)

    def watch(simulation: Simulation) -> None:
        outcome.moments.append(simulation.clock.now())
        outcome.consensus.append(simulation.consensus())
        simulation.load_mean()
        outcome.losses.append(problem.held_out_loss())

    every = contest.seconds / contest.points
    simulation = Simulation(setting, problem, watch=watch, every=every)
    log = simulation.run(seconds=contest.seconds)
    nodes = simulation.nodes
    outcome.updates = [len(node.steps) for node in nodes]
    outcome.died = sorted(setting.deaths)
    outcome.healed = {node: healed(simulation, node) for node in setting.deaths}
    outcome.staleness = [step.staleness for step in log]
    done = max(1, len(log))
    outcome.mixes = sum(node.engine.rounds for node in nodes) / done
    outcome.exposed = sum(step.exposed for step in log) / (contest.seconds * len(nodes))
    outcome.sent = simulation.bytes_sent() / contest.model_bytes / done
    return outcome


def healed(simulation: Simulation, node: int) -> float | None:
    """As `Outcome.healed`."""
    if simulation.setting.schedule.free:
        return None
    moment = simulation.setting.deaths[node]
    went: dict[int, float] = {}
    for change in simulation.changes:
        if change.moment >= moment and node not in change.alive:
            went.setdefault(change.node, change.moment)
    others = {n.index for n in simulation.nodes} - simulation.setting.deaths.keys()
    return max((went.get(i, math.inf) for i in others), default=math.inf) - moment


HEADER = (
    "strategy",
    "schedule",
    "gradients/s",
    "updates/s: slowest",
    "median",
    "mixes/update",
    "staleness mean",
    "max",
    "waiting",
    "models sent/update",
    "consensus",
    "held-out loss",
)


def row(outcome: Outcome, seconds: float) -> list[str]:
    """A line of the table; the slowest and the median of those that did not die."""
    updates = [n for node, n in enumerate(outcome.updates) if node not in outcome.died]
    return [
        outcome.name,
        outcome.schedule,
        f"{sum(outcome.updates) * outcome.size / seconds:.2f}",
        f"{min(updates) / seconds:.3f}",
        f"{statistics.median(updates) / seconds:.3f}",
        f"{outcome.mixes:.2f}",
        f"{statistics.fmean(outcome.staleness or [0]):.2f}",
        str(max(outcome.staleness, default=0)),
        f"{outcome.exposed:.1%}",
        f"{outcome.sent:.2f}",
        f"{outcome.consensus[-1]:.4f}",
        f"{outcome.losses[-1]:.4f}",
    ]


def plot(panels: Mapping[str, Sequence[Outcome]], path: Path) -> None:
    """Held-out loss and consensus against simulated time, a column for each title; a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(
        2,
        len(panels),
        figsize=(3 + 5 * len(panels), 7),
        sharex="col",
        sharey="row",
        squeeze=False,
        layout="constrained",
    )
    for (above, below), (title, outcomes) in zip(grid.T, panels.items(), strict=True):
        for n, outcome in enumerate(outcomes):
            label = outcome.name
            if label != "hadpsgd" and outcome.schedule not in label:
                label += f" ({outcome.schedule})"
            style = {"color": f"C{n}", "linestyle": ("-", "--", "-.")[n % 3]}
            above.plot(outcome.moments, outcome.losses, label=label, **style)
            # equal learners (ssgd) have no distance to show
            shown = [value if value > 1e-4 else float("nan") for value in outcome.consensus]
            below.semilogy(outcome.moments, shown, **style)
        above.set(title=title)
        below.set(xlabel="simulated seconds")
        for axes in (above, below):
            axes.grid(alpha=0.3)
    grid[0][0].set(ylabel="held-out loss of the learners' mean")
    grid[1][0].set(ylabel="consensus distance")
    grid[0][-1].legend(fontsize="small")
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=80)
    pyplot.close(figure)
