"""Clusters, teams and work for tests of the planner, some drawn."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from hadpsgd.planning import papers
from hadpsgd.planning.cluster import Cluster, Compute, Link
from hadpsgd.planning.model import STRATEGIES, Strategy, Team, Work

MODEL = papers.MODEL_BYTES
FAST = Link(bandwidth=1e15)


def a_cluster(**changes: Any) -> Cluster:
    """8 nodes of 8 V100s or so."""
    usual: dict[str, Any] = {
        "nodes": 8,
        "gpus": 8,
        "compute": Compute(each=5e-4, half_batch=70.0, noise=0.05),
        "inside": Link(bandwidth=5e10, latency=5e-6),
        "between": Link(bandwidth=6e9, latency=2e-5),
        "contention": 0.5,
    }
    return Cluster(**(usual | changes))


def a_team(strategy: Strategy, learners: int = 64, batch: int = 8192, size: int = 8) -> Team:
    if strategy == "single":
        return Team(strategy=strategy, batch=batch)
    size = size if strategy == "hadpsgd" else 1
    return Team(strategy=strategy, batch=batch, learners=learners, super_learner=size)


machines = st.builds(
    a_cluster,
    compute=st.builds(
        Compute,
        each=st.floats(1e-6, 10),
        half_batch=st.floats(0, 1000),
        noise=st.floats(0, 0.5),
    ),
    inside=st.builds(Link, bandwidth=st.floats(1e6, 1e12), latency=st.floats(0, 1e-2)),
    between=st.builds(Link, bandwidth=st.floats(1e6, 1e12), latency=st.floats(0, 1e-2)),
    contention=st.floats(0, 0.9),
    slowest=st.floats(1, 10),
)
chosen = st.builds(
    a_team,
    strategy=st.sampled_from(STRATEGIES),
    learners=st.sampled_from([8, 16, 24, 32, 64]),
    size=st.sampled_from([2, 4, 8]),
)
WORK = Work(model_bytes=MODEL, hours_of_speech=300)
