"""The model of time fitted to some of the papers' figures, and the others beside its predictions.

H is arXiv 1907.05701, E 2002.01119, S 1904.04956, all on V100s and 100 Gb/s. What the fit cannot
tell apart is assumed (`EFFICIENCY`, `NOISE`, `NVLINK`); docs/benchmarks/papers-hours.md says why.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import scipy  # its parts are loaded as they are used

from hadpsgd.planning.cluster import Cluster, Compute, Link
from hadpsgd.planning.model import Team, Work, hours, step

MODEL_BYTES = 43_154_944 * 4
"""Of the papers' model (E)."""
ETHERNET = 12.5e9
"""Bytes a second of 100 Gb/s (H)."""
EFFICIENCY = 0.5
"""Share of a link's printed bandwidth that programs reach. Assumed."""
NVLINK = 50e9
"""Bytes a second of a V100 to the others of its node. Assumed."""
NOISE = 0.05
"""Standard deviation over mean of a gradient's time. Assumed."""
SWB2000 = Work(model_bytes=MODEL_BYTES, hours_of_speech=2000)
NODE_OF_E = 6
"""GPUs of a node (E, Fig. 3)."""
NODE_OF_H = 8


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A number of a paper beside the model's."""

    name: str
    source: str
    paper: float
    unit: str
    model: float
    fitted: bool

    @property
    def error(self) -> float:
        """Of the model, over the paper's number."""
        return self.model / self.paper - 1


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """What the figures say of their machines."""

    compute: Compute
    """Of a V100 in E."""
    contention: float
    alone: float
    """Hours of one of them, batch 256."""


TABLE_3 = {16: 5.88, 32: 3.60, 64: 2.28, 96: 2.10, 128: 1.98}
"""Learners -> hours (E, Table 3): D1D, total batch 8192."""
OVER_EIGHT = 8.5
"""E, Fig. 3: 11 nodes give "over 8x" of one; read as the middle of 8 to 9."""
SINGLE_OF_H = 192.0
"""Hours of one V100 at batch 256, as told in a talk on H."""
SINGLE_OF_S = 7 * 24.0
"""The same, as the blog on S tells it: one week."""
FITTED_LEARNERS = (16, 64, 128)


def cluster_of_e(compute: Compute, contention: float, *, nodes: int) -> Cluster:
    """E's machines."""
    return Cluster(
        nodes=nodes,
        gpus=NODE_OF_E,
        compute=compute,
        inside=Link(bandwidth=NVLINK),
        between=Link(bandwidth=ETHERNET * EFFICIENCY),
        contention=contention,
    )


def d1d_hours(compute: Compute, contention: float, *, learners: int) -> float:
    """Hours of E's Table 3; 8192 / 96 is rounded to 85."""
    team = Team(strategy="d1d", batch=8192 // learners * learners, learners=learners)
    return hours(team, cluster_of_e(compute, contention, nodes=-(-learners // NODE_OF_E)), SWB2000)


def eleven_nodes(compute: Compute, contention: float) -> float:
    """How many times as fast 11 nodes are as one, D1D at 128 a learner (E, Fig. 3)."""
    speeds = []
    for nodes in (1, 11):
        learners = nodes * NODE_OF_E
        team = Team(strategy="d1d", batch=128 * learners, learners=learners)
        cluster = cluster_of_e(compute, contention, nodes=nodes)
        speeds.append(learners / step(team, cluster, MODEL_BYTES).seconds)
    return speeds[1] / speeds[0]


@cache
def fit() -> Fitted:
    """Least squares of three constants over four figures, in relative errors."""

    def machine(constants: np.ndarray) -> tuple[Compute, float]:
        each, half_batch, contention = map(float, constants)
        return Compute(each=each / 1000, half_batch=half_batch, noise=NOISE), contention

    def errors(constants: np.ndarray) -> list[float]:
        found = machine(constants)
        table = [math.log(d1d_hours(*found, learners=n) / TABLE_3[n]) for n in FITTED_LEARNERS]
        return [*table, math.log(eleven_nodes(*found) / OVER_EIGHT)]

    start, bounds = [0.5, 100.0, 0.5], ([0.01, 0.0, 0.0], [10.0, 1000.0, 0.95])
    found = scipy.optimize.least_squares(errors, start, bounds=bounds, x_scale=[0.1, 10.0, 0.1])
    compute, contention = machine(found.x)
    alone = hours(
        Team(strategy="single", batch=256), cluster_of_e(compute, contention, nodes=1), SWB2000
    )
    return Fitted(compute=compute, contention=contention, alone=alone)


def older_hours(team: Team, nodes: int, *, alone: float) -> float:
    """Hours on the machines of H and S, one of which takes `alone` hours at batch 256."""
    fitted = fit()
    compute = replace(fitted.compute, each=fitted.compute.each * alone / fitted.alone)
    cluster = replace(cluster_of_e(compute, fitted.contention, nodes=nodes), gpus=NODE_OF_H)
    return hours(team, cluster, SWB2000)


def figures() -> list[Figure]:
    """All that the papers tell of time, fitted and predicted."""
    fitted = fit()
    machine = fitted.compute, fitted.contention
    found = [
        Figure(
            name=f"D1D, {learners} learners, batch 8192",
            source="E, Table 3",
            paper=paper,
            unit="h",
            model=d1d_hours(*machine, learners=learners),
            fitted=learners in FITTED_LEARNERS,
        )
        for learners, paper in TABLE_3.items()
    ]
    single = Team(strategy="single", batch=256)
    h = Team(strategy="hadpsgd", batch=8192, learners=64, super_learner=8)
    s = Team(strategy="adpsgd", batch=2560, learners=32)
    older = [
        ("one learner, batch 256", "H (talk)", SINGLE_OF_H, single, 1, SINGLE_OF_H),
        ("H-ADPSGD, 8 super-learners of 8, batch 8192", "H", 5.2, h, 8, SINGLE_OF_H),
        ("one learner, batch 256", "S (blog)", SINGLE_OF_S, single, 1, SINGLE_OF_S),
        ("ADPSGD, 32 learners, batch 2560", "S (blog)", 11.5, s, 4, SINGLE_OF_S),
    ]
    found.append(
        Figure(
            name="D1D, 11 nodes over one",
            source="E, Fig. 3",
            paper=OVER_EIGHT,
            unit="x",
            model=eleven_nodes(*machine),
            fitted=True,
        )
    )
    found += [
        Figure(
            name=name,
            source=source,
            paper=paper,
            unit="h",
            model=older_hours(team, nodes, alone=alone),
            fitted=team is single,
        )
        for name, source, paper, team, nodes, alone in older
    ]
    return found


def largest_error() -> float:
    """Of the figures, relative."""
    return max(abs(figure.error) for figure in figures())


def table() -> str:
    """Markdown: the figures, one a row."""
    lines = ["| | source | paper | model | error | |", "|---|---|---:|---:|---:|---|"]
    for figure in figures():
        lines.append(
            f"| {figure.name} | {figure.source} | {figure.paper:g} {figure.unit} | "
            f"{figure.model:.2f} {figure.unit} | {round(100 * figure.error, 1) + 0.0:+.1f} % | "
            f"{'fitted' if figure.fitted else 'predicted'} |"
        )
    return "\n".join(lines)
