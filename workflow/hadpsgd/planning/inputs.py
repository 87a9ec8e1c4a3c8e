"""The numbers that a plan starts from, each with where it comes from: given, measured, assumed."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hadpsgd.config import load, settings_of
from hadpsgd.config.settings import Model
from hadpsgd.errors import UserError
from hadpsgd.numeric import add_real, add_whole
from hadpsgd.planning import measure, papers
from hadpsgd.planning.cluster import (
    LATENCY_BETWEEN,
    LATENCY_INSIDE,
    MOST_BANDWIDTH,
    Cluster,
    Compute,
    Link,
)
from hadpsgd.planning.model import Work
from hadpsgd.training.evaluation import pick_device

MEASURING = 20.0
"""Seconds of `--measure`."""
SOCKETS = "a pair of sockets of this machine"
SECONDS = 1e6
"""Of a gradient or message: no machine takes more."""


@dataclass
class Inputs:
    """What the arguments, measurements and assumptions come to."""

    cluster: Cluster
    work: Work
    notes: list[str]
    """A line each: quantity, value and source."""


@dataclass
class _Sources:
    notes: list[str] = field(default_factory=list)

    def take(
        self, what: str, given: float | None, otherwise: Callable[[], tuple[float, str]]
    ) -> float:
        """The given number, or another with its source; either is noted."""
        value, source = (given, "given") if given is not None else otherwise()
        self.notes.append(f"{what}: {value:.4g} ({source})")
        return value


def assumed(value: float, why: str) -> Callable[[], tuple[float, str]]:
    """A number that nobody gave or measured."""
    return lambda: (value, f"assumed: {why}")


def measured(value: float, what: str) -> Callable[[], tuple[float, str]]:
    """A number seen here."""
    return lambda: (value, f"measured: {what}")


def add(parser: argparse.ArgumentParser) -> None:
    """Arguments that `collect` reads."""
    group = parser.add_argument_group("cluster")
    add_whole(group, "--nodes", most=100_000, default=1, help="hosts (1)")
    add_whole(group, "--gpus", most=1024, default=1, help="GPUs of a node (1)")
    add_real(
        group,
        "--bandwidth",
        least=1.0,
        most=MOST_BANDWIDTH,
        help="bytes a second between nodes, as printed on the link",
    )
    add_real(group, "--latency", most=SECONDS, help="seconds of a message between nodes")
    add_real(
        group,
        "--inside-bandwidth",
        least=1.0,
        most=MOST_BANDWIDTH,
        help="bytes a second of a GPU in its node",
    )
    add_real(
        group, "--efficiency", least=1e-6, most=1.0, help="share of --bandwidth that is reached"
    )
    add_real(
        group,
        "--contention",
        most=0.999,
        help="share of speed that messages cost a gradient beside them",
    )
    add_real(
        group,
        "--slowest",
        least=1.0,
        most=SECONDS,
        default=1.0,
        help="how many times slower one learner is (1)",
    )
    group = parser.add_argument_group("gradient")
    add_real(group, "--compute", least=1e-9, most=SECONDS, help="seconds of a learner's gradient")
    add_whole(group, "--compute-batch", default=128, help="subsequences of that gradient (128)")
    add_real(group, "--half-batch", help="subsequences that the fixed part of a step is worth")
    add_real(group, "--noise", most=1.0, help="standard deviation over mean of its time")
    group = parser.add_argument_group("training")
    add_real(
        group,
        "--hours-of-speech",
        above=True,
        default=2000.0,
        help="hours of training speech (2000)",
    )
    add_real(group, "--epochs", above=True, most=1e6, default=16.0, help="passes over it (16)")
    add_whole(group, "--frames", most=10_000, default=21, help="of a subsequence (21)")
    group.add_argument("--config", type=Path, help="whose model is trained; else the papers'")
    group.add_argument("--run-id", "--run", dest="run", help="of the config; the first without it")
    add_whole(
        group,
        "--input-dim",
        most=100_000,
        default=260,
        help="inputs of a frame, without --config (260)",
    )
    add_whole(
        group,
        "--num-pdfs",
        most=1_000_000,
        default=32_000,
        help="outputs of the network, pdf-ids (32000)",
    )
    add_whole(group, "--bytes", most=16, default=4, help="of a parameter on the link (4)")
    group = parser.add_argument_group("measuring")
    group.add_argument(
        "--measure", action="store_true", help="time what is not given on this machine"
    )
    add_real(
        group,
        "--measure-seconds",
        above=True,
        most=3600.0,
        default=MEASURING,
        help="seconds for each thing that is measured",
    )


def collect(args: argparse.Namespace) -> Inputs:
    """Check the arguments, measure where they ask for it, and say what came from where.

    Raises:
        UserError: numbers that cannot be, or that are missing.
    """
    _check(args)
    task = _task(args)
    sources = _Sources()
    compute = _compute(args, task, sources)
    between, inside = _links(args, sources)
    contention = _contention(args, task, sources)
    cluster = Cluster(
        nodes=args.nodes,
        gpus=args.gpus,
        compute=compute,
        inside=inside,
        between=between,
        contention=contention,
        slowest=args.slowest,
    )
    work = Work(
        model_bytes=float(task.parameters * args.bytes),
        hours_of_speech=args.hours_of_speech,
        epochs=args.epochs,
        frames=args.frames,
    )
    sources.notes.append(f"model: {task.parameters:,} parameters of {args.bytes} bytes")
    return Inputs(cluster, work, sources.notes)


def _check(args: argparse.Namespace) -> None:
    if args.compute is None and not args.measure:
        raise UserError("--compute is missing", fix="Give seconds of a gradient, or --measure")
    if args.nodes > 1 and args.bandwidth is None and not args.measure:
        raise UserError("--bandwidth is missing", fix="Give bytes a second between the nodes")


def _task(args: argparse.Namespace) -> measure.Task:
    shape = Model()
    if args.config is not None:
        config = load(args.config)
        shape = settings_of(config, args.run or config.training.members[0].id).model
    return measure.Task(
        shape=shape,
        input_dim=args.input_dim,
        num_pdfs=args.num_pdfs,
        frames=args.frames,
        device=str(pick_device("auto", 0)),
    )


def _compute(args: argparse.Namespace, task: measure.Task, sources: _Sources) -> Compute:
    fitted = papers.fit().compute
    half, noise = (
        assumed(fitted.half_batch, "the papers' V100"),
        assumed(fitted.noise, "a quiet cluster"),
    )
    seen: Compute | None = None
    if args.measure and args.compute is None:
        found = measure.measure_compute(
            task, batch=args.compute_batch, seconds=args.measure_seconds / 2
        )
        seen = found.compute
        small, large = found.batches
        sources.notes.append(
            f"gradients on {task.device}: {1000 * found.seconds[0]:.1f} ms of {small} "
            f"subsequences, {1000 * found.seconds[1]:.1f} ms of {large} (measured; of others, by a "
            "line through both)"
        )
        half = measured(seen.half_batch, "where the line cuts")
        noise = measured(seen.noise, "the middle half of the gradients")
    half_batch = sources.take("half-speed batch, subsequences", args.half_batch, half)
    share = sources.take("noise of a gradient's time", args.noise, noise)
    if seen is not None:
        return Compute(each=seen.each, half_batch=half_batch, noise=share)
    of = f"{args.compute_batch} subsequences"
    sources.notes.append(f"seconds of a gradient of {of}: {args.compute:.4g} (given)")
    usual = Compute(each=1.0, half_batch=half_batch, noise=share)
    return usual.taking(seconds=args.compute, batch=args.compute_batch)


def _links(args: argparse.Namespace, sources: _Sources) -> tuple[Link, Link]:
    """Between nodes and inside one; of one node alone the first is never used."""
    unknown = args.inside_bandwidth is None or (args.nodes > 1 and args.bandwidth is None)
    loopback = None
    if args.measure and unknown:
        loopback = measure.measure_loopback(args.measure_seconds / 10)
    inner = assumed(papers.NVLINK, "NVLink of a V100")
    if loopback is not None:
        inner = measured(loopback.bandwidth, SOCKETS)
    inside = Link(
        bandwidth=sources.take("bytes a second inside a node", args.inside_bandwidth, inner),
        latency=LATENCY_INSIDE,
    )
    return (_between(args, sources, loopback) if args.nodes > 1 else inside), inside


def _between(args: argparse.Namespace, sources: _Sources, loopback: Link | None) -> Link:
    latency = assumed(LATENCY_BETWEEN, "a cluster's network")
    if args.bandwidth is None and loopback is not None:
        note = f"{SOCKETS}, which is no network: give --bandwidth"
        bandwidth = sources.take(
            "bytes a second between nodes", None, measured(loopback.bandwidth, note)
        )
        latency = measured(loopback.latency, SOCKETS)
    else:
        printed = sources.take(
            "bytes a second between nodes", args.bandwidth, assumed(papers.ETHERNET, "100 Gb/s")
        )
        reached = assumed(papers.EFFICIENCY, "what programs often reach")
        bandwidth = printed * sources.take("share of them reached", args.efficiency, reached)
    return Link(
        bandwidth=bandwidth,
        latency=sources.take("latency between nodes, s", args.latency, latency),
    )


def _contention(args: argparse.Namespace, task: measure.Task, sources: _Sources) -> float:
    if args.measure and args.contention is None and task.device == "cpu":
        share = measure.measure_contention(task, seconds=args.measure_seconds / 4)
        return sources.take("contention", None, measured(share, "gradients beside busy sockets"))
    fitted = papers.fit().contention
    return sources.take("contention", args.contention, assumed(fitted, "fitted to the papers"))
