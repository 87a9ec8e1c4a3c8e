"""Hours, memory and disk of a whole config, stage by stage, before anything runs.

Stages before training follow the lines that were measured (`pieces`), extrapolated; training on
GPUs follows the model of time (docs/time-model.md), on processors the arithmetic of its network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hadpsgd.config import Config, settings_of
from hadpsgd.config.neural_lm import NeuralLm
from hadpsgd.config.stage import StageRun
from hadpsgd.errors import UserError
from hadpsgd.planning import language, papers
from hadpsgd.planning.cluster import LATENCY_BETWEEN, LATENCY_INSIDE, Cluster, Link
from hadpsgd.planning.model import STRATEGIES, Team, Work, hours
from hadpsgd.planning.pieces import measured
from hadpsgd.planning.stages import GROUPS, stage_hours, stage_seconds, stages_of, sums_mib
from hadpsgd.setup.need import bytes_needed, network_parameters, network_work, repeats

SEARCH = 0.3
"""Processor seconds of search a second of speech, 85,000 words; assumed: no such graph was here."""
PASSES_OF_ADAPTATION = 2
"""Searches of dev and test by the GMM-HMM, before the network's."""
LFMMI = 1.5e-4
"""Processor seconds a frame for numerator and denominator of lattice-free MMI, whatever the
network: children's speech 1.6e-4, built-in corpus 1.5e-4, AN4 0.9e-4
(docs/benchmarks/parts.md#what-each-part-takes)."""
FORWARD_AND_BACKWARD = 3
"""Backward takes twice what forward takes."""
MULTIPLY_AND_ADD = 2
FRAMES_AN_HOUR = 360_000
GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Machines:
    """What the work is spread over."""

    cores: int
    """For the stages before training and for decoding, all hosts together."""
    nodes: int = 1
    gpus: int = 0
    """Of a node; 0: trained on cores."""
    speed: float = 1.0
    """Of a GPU, over the papers' V100."""
    bandwidth: float = papers.ETHERNET


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of the table."""

    stage: str
    core_hours: float = 0.0
    gpu_hours: float = 0.0
    hours: float = 0.0
    """From begin to end on these machines."""
    gib: float = 0.0
    """Memory of the stage's largest job, measured on two cores; the sums of more Gaussians than
    were measured are computed, for all cores."""
    rests_on: str = ""


def cost(config: Config, machines: Machines, *, train: float, test: float) -> list[Row]:
    """A row for each part of the workflow.

    Args:
        config: what is run.
        machines: where.
        train: hours of training speech, at one speed.
        test: hours that are decoded, dev included.

    Raises:
        UserError: a run needs more GPUs than there are.
    """
    rows = list(_before_training(config, machines, train))
    if config.lm.neural:
        rows.append(_neural_lm(config, config.lm.neural, machines, train))
    for run in config.training.members:
        rows.append(_training(config, run.id, machines, train))
    decoded = [[run.id] for run in config.training.members if run.decode]
    decoded += [config.together(name) for name in config.decoding.ensembles]
    by_gmm = PASSES_OF_ADAPTATION * config.adapts_speakers + bool(config.gmm_row)
    if decoded or by_gmm:
        rows.append(_decoding(config, machines, test, decoded, by_gmm=by_gmm))
    listed = len(decoded) + bool(config.gmm_row)
    if config.lm.neural and listed:
        rows.append(_neural_lists(config, config.lm.neural, machines, listed * test))
    return rows


def disk(config: Config, *, train: float) -> float:
    """Bytes of the results."""
    return bytes_needed(config, train)


def _before_training(config: Config, machines: Machines, train: float) -> Iterator[Row]:
    pieces = measured()
    for group in GROUPS:
        names = stages_of(config, group)
        if not names:
            continue
        amounts = {name: stage_hours(config, name, train) for name in names}
        core_hours = sum(stage_seconds(config, *pair) for pair in amounts.items()) / 3600
        cores = machines.cores
        gib = max(pieces.stages[n].mib + sums_mib(config, n, cores) for n in names) / 1024
        beyond = max(amounts.values()) / pieces.longest
        rests_on = f"measured to {pieces.longest:g} h" + (f", x{beyond:.0f}" if beyond > 1 else "")
        yield Row(
            stage=group,
            core_hours=core_hours,
            hours=core_hours / cores,
            gib=gib,
            rests_on=rests_on,
        )


def _training(config: Config, run_id: str, machines: Machines, train: float) -> Row:
    settings = settings_of(config, run_id)
    run, training = settings.run, settings.training
    network = network_work(config, run_id)
    egs = run.stage.examples(config.egs) if isinstance(run, StageRun) else config.egs
    amount = train * repeats(config, egs)
    name = f"train {run_id}"
    if not machines.gpus:
        frames = training.epochs * FRAMES_AN_HOUR * amount
        work = FORWARD_AND_BACKWARD * MULTIPLY_AND_ADD * network
        each = work / (measured().gflops * 1e9) + LFMMI * isinstance(run, StageRun)
        core_hours = frames * each / 3600
        return Row(
            stage=name,
            core_hours=core_hours,
            hours=core_hours / min(machines.cores, run.learners * (training.threads or 1)),
            rests_on="arithmetic, at a core's measured speed",
        )
    if run.strategy not in STRATEGIES:
        raise UserError(
            f"run {run_id}: the model of time has no strategy {run.strategy}",
            fix="Name another run with --run-id",
        )
    fitted = papers.fit()
    # of the time of the papers' network, which works on all of its parameters in every frame
    share = 4.0 * network / papers.MODEL_BYTES / machines.speed
    compute = replace(fitted.compute, each=fitted.compute.each * share)
    cluster = Cluster(
        nodes=machines.nodes,
        gpus=machines.gpus,
        compute=compute,
        inside=Link(bandwidth=papers.NVLINK, latency=LATENCY_INSIDE),
        between=Link(bandwidth=machines.bandwidth * papers.EFFICIENCY, latency=LATENCY_BETWEEN),
        contention=fitted.contention,
    )
    team = Team(
        strategy=run.strategy,
        batch=training.batch,
        learners=run.learners,
        super_learner=run.super_learner,
        schedule=run.schedule,
    )
    work_ = Work(
        model_bytes=4.0 * network_parameters(config, run_id),
        hours_of_speech=amount,
        epochs=training.epochs,
        frames=egs.frames,
    )
    took = hours(team, cluster, work_)
    return Row(
        stage=name,
        gpu_hours=took * run.learners,
        hours=took,
        rests_on="model of time, fitted to the papers' V100",
    )


def _decoding(
    config: Config,
    machines: Machines,
    test: float,
    decoded: Sequence[Sequence[str]],
    *,
    by_gmm: int,
) -> Row:
    """Each of `decoded` are ids of runs that are decoded together: one search of all scores."""
    network = max(network_work(config, run.id) for run in config.training.members)
    forward = MULTIPLY_AND_ADD * network * FRAMES_AN_HOUR / (measured().gflops * 1e9)
    core_hours = sum(test * (len(runs) * forward / 3600 + SEARCH) for runs in decoded)
    core_hours += by_gmm * test * SEARCH
    return Row(
        stage="decoding",
        core_hours=core_hours,
        hours=core_hours / machines.cores,
        rests_on="arithmetic; search assumed",
    )


def _neural_lm(config: Config, neural: NeuralLm, machines: Machines, train: float) -> Row:
    core_hours = language.training_seconds(config, neural, train) / 3600
    return Row(
        stage="neural-lm",
        core_hours=core_hours,
        hours=core_hours / min(machines.cores, neural.learners * neural.threads),
        gib=language.training_gib(config, neural) * neural.learners,
        rests_on="words of text, speed measured",
    )


def _neural_lists(config: Config, neural: NeuralLm, machines: Machines, hours: float) -> Row:
    core_hours = language.list_seconds(config, neural, hours) / 3600
    return Row(
        stage="neural-lists",
        core_hours=core_hours,
        hours=core_hours / machines.cores,
        rests_on="lists as long as may be, speed measured",
    )


def total(rows: Sequence[Row]) -> Row:
    """All, one after the other."""
    return Row(
        stage="in all",
        core_hours=sum(row.core_hours for row in rows),
        gpu_hours=sum(row.gpu_hours for row in rows),
        hours=sum(row.hours for row in rows),
        gib=max(row.gib for row in rows),
    )


def shown(value: float) -> str:
    """Three digits, and never an exponent."""
    if not value:
        return "-"
    if value < 0.01:
        return "<0.01"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
