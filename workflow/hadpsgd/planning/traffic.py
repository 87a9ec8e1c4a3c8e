"""Seconds that weights and gradients need on the links of a cluster, with nothing in their way."""

from __future__ import annotations

from hadpsgd.planning.cluster import Cluster


def allreduce(cluster: Cluster, *, learners: int, size: float) -> float:
    """Seconds of the sum of `size` bytes over learners that fill node after node.

    Reduce-scatter in each node, ring allreduce of the shards between the nodes, all-gather in each
    node: 2(k-1)/k of the bytes pass a GPU's link, 2(n-1)/n a node's. One after the other: what a
    library hides of the shorter one is left out.
    """
    nodes, on_node = cluster.spread(learners)
    inside, between = cluster.inside, cluster.between
    return (
        2 * (on_node - 1) / on_node * size / inside.bandwidth
        + 2 * (on_node - 1) * inside.latency
        + 2 * (nodes - 1) / nodes * size / between.bandwidth
        + 2 * (nodes - 1) * between.latency
    )


def mixing(
    cluster: Cluster, schedule: str, *, learners: int, super_learner: int, size: float
) -> float:
    """Seconds of a round of mixing among super-learners that fill node after node.

    Each sends its model to one partner (`pairwise`) or two (`ring`, `random-ring`), a shard from
    each of its learners; a node's link carries what leaves it.
    """
    count = learners // super_learner
    if count < 2:
        return 0.0
    nodes, on_node = cluster.spread(learners)
    partners = 1 if schedule == "pairwise" or count == 2 else 2
    seconds = 0.0
    if on_node > super_learner:  # some partners are on the same node
        seconds = partners * size / super_learner / cluster.inside.bandwidth
        seconds += cluster.inside.latency
    if nodes > 1:
        leaving = _leaving(
            schedule, count=count, on_node=on_node // super_learner, partners=partners
        )
        out = leaving * size / cluster.between.bandwidth + cluster.between.latency
        seconds = max(seconds, out)
    return seconds


def _leaving(schedule: str, *, count: int, on_node: int, partners: int) -> float:
    """Models that leave a node in a round, of `on_node` of `count` super-learners."""
    if schedule == "random-ring":  # any other is as likely a neighbour
        return partners * on_node * (count - on_node) / (count - 1)
    return partners  # the first and the last of a node have their neighbours on other nodes
