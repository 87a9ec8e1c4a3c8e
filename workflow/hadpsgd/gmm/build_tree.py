"""Decision trees from statistics and questions (Kaldi's build-tree and gmm-init-model)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hadpsgd.corpus.lang.topology import Topology
from hadpsgd.errors import UserError
from hadpsgd.gmm import diag_gmm
from hadpsgd.gmm.context_stats import (
    VARIANCE_FLOOR,
    TreeStatistics,
    leaf_sums,
    leaves_of,
    likelihood,
)
from hadpsgd.gmm.diag_gmm import Mixtures
from hadpsgd.gmm.event_map import Leaf, Node, Split, Table, Tree, leaves
from hadpsgd.gmm.phone_questions import Questions
from hadpsgd.gmm.statistics import Doubles
from hadpsgd.gmm.tree_merges import Compartment, merge_below, merge_number
from hadpsgd.gmm.tree_roots import Root, stub
from hadpsgd.gmm.tree_splits import Grown, Splits, Splitter, grow

ROUND_TO = 8


@dataclass(frozen=True, kw_only=True)
class Growth:
    """How far a tree grows.

    max_leaves: 0 for no limit; threshold: gain that a split must exceed (--thresh);
    merge_threshold: leaves of a root that cost no more to merge are merged (--cluster-thresh),
    below 0 the smallest gain of a split, 0 for none; round_leaves: to a multiple of 8.
    """

    max_leaves: int
    threshold: float = 300.0
    merge_threshold: float = -1.0
    round_leaves: bool = True
    floor: float = VARIANCE_FLOOR


class Built(NamedTuple):
    """A tree and what it took: splits, merges, log-likelihood a frame at the roots and now."""

    tree: Tree
    splits: Splits
    merges: int
    before: float
    after: float

    @property
    def summary(self) -> str:
        """One line on what was done."""
        return (
            f"tree: {self.splits.number} splits, {self.merges} merges, {self.tree.num_pdfs} "
            f"leaves; log-likelihood a frame {self.before:.3f} → {self.after:.3f}"
        )


def build_tree(
    stats: TreeStatistics,
    roots: Sequence[Root],
    questions: Questions,
    topology: Topology,
    growth: Growth,
) -> Built:
    """Split the roots, merge what is alike, number leaves from 0.

    Raises:
        UserError: the statistics have a phone that no root has.
    """
    context = stats.context
    base = stub(roots, topology, context.position)
    answers = leaves_of(base, stats.events)
    if (answers < 0).any():
        phone = stats.events[int(np.argmin(answers)), context.position]
        raise UserError(f"phone {phone} is aligned, and no root of the tree has it",
                        fix="Add it to roots.int")  # fmt: skip
    grown = [Grown(number, np.flatnonzero(answers == number)) for number in range(_size(base))]
    fixed = [phone for root in roots if not root.split for phone in root.phones]
    closed = set(answers[np.isin(stats.events[:, context.position], fixed)].tolist())
    splits = grow(
        grown,
        closed,
        Splitter(stats, questions, growth.floor),
        threshold=growth.threshold,
        max_leaves=growth.max_leaves,
    )
    merged, merges = _merge(grown, stats, growth, splits)
    wide = _replaced(base, {root.leaf: root.node() for root in grown})
    kept = {new: Leaf(rank) for rank, new in enumerate(sorted(set(merged.values())))}
    final = _replaced(wide, {leaf: kept[target] for leaf, target in merged.items()})
    tree = Tree(width=context.width, position=context.position, root=final)
    start = Tree(width=context.width, position=context.position, root=base)
    before, after = (likelihood(each, stats, growth.floor) for each in (start, tree))
    return Built(tree=tree, splits=splits, merges=merges, before=before, after=after)


def _size(root: Node) -> int:
    return 1 + max(leaf.answer for leaf in leaves(root))


def _merge(
    grown: Sequence[Grown], stats: TreeStatistics, growth: Growth, splits: Splits
) -> tuple[dict[int, int], int]:
    """Which leaf each leaf is merged into, and how many merges there were."""
    compartments: list[Compartment] = []
    merged: dict[int, int] = {}
    for root in grown:
        below = root.leaves()
        merged |= {leaf.leaf: leaf.leaf for leaf in below}
        sums = np.array([stats.sums[leaf.rows].sum(axis=0) for leaf in below])
        numbers = [leaf.leaf for leaf in below if len(leaf.rows)]
        seen = sums[[bool(len(leaf.rows)) for leaf in below]]
        if len(numbers) > 1:
            compartments.append(Compartment(numbers, seen, growth.floor))
    threshold = splits.smallest if growth.merge_threshold < 0 else growth.merge_threshold
    merges = merge_below(compartments, threshold) if threshold != 0 else 0
    if growth.round_leaves:
        left = len(merged) - merges
        rounded = left // ROUND_TO * ROUND_TO
        if rounded >= len(grown):
            merges += merge_number(compartments, left - rounded)
    for compartment in compartments:
        merged |= compartment.merged_into
    return merged, merges


def _replaced(node: Node, by: Mapping[int, Node]) -> Node:
    """The tree with its leaves replaced."""
    match node:
        case Leaf(answer):
            return by[answer]
        case Split(key, values, yes, no):
            return Split(key, values, _replaced(yes, by), _replaced(no, by))
        case Table(key, children):
            return Table(
                key, tuple(None if child is None else _replaced(child, by) for child in children)
            )


class Initial(NamedTuple):
    """One Gaussian a pdf; frames of each [pdfs]; pdfs without any, which got those of all."""

    mixtures: Mixtures
    occupancy: Doubles
    unseen: list[int]


def initial_mixtures(tree: Tree, stats: TreeStatistics, floor: float = VARIANCE_FLOOR) -> Initial:
    """The model that training starts from (Kaldi's gmm-init-model)."""
    sums = leaf_sums(tree, stats)
    occupancy = sums[:, 0].copy()
    unseen = np.flatnonzero(occupancy <= 0)
    sums[unseen] = sums.sum(axis=0)
    dim = stats.dim
    means = sums[:, 1 : 1 + dim] / sums[:, :1]
    variances = np.maximum(sums[:, 1 + dim :] / sums[:, :1] - means**2, floor)
    ones = np.ones(len(sums))
    mixtures = diag_gmm.make(ones.astype(np.int64), ones, means, variances)
    return Initial(mixtures, occupancy, unseen.tolist())
