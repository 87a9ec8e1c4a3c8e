"""Statistics for decision trees: sums of frames by phone window and state (acc-tree-stats).

An event is a window of phones and the pdf-class (HMM state) of the central one. Sums of an event
are one row: count, sum of x, sum of x squared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hadpsgd.corpus.lang.topology import Topology
from hadpsgd.features.gaussians import LOG_2PI
from hadpsgd.gmm.diag_gmm import Array
from hadpsgd.gmm.event_map import PDF_CLASS, Node, Split, Table, Tree, leaves
from hadpsgd.gmm.phone_segments import Segments
from hadpsgd.gmm.statistics import Doubles
from hadpsgd.gmm.transition_model import TransitionModel

VARIANCE_FLOOR = 0.01
"""Kaldi's --var-floor of acc-tree-stats."""
ABSENT = -1
"""In place of a neighbour that may not be asked for, as the central phone has no context."""

Events = NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class Context:
    """Windows of `width` phones around the one at `position`; `independent` phones see none."""

    width: int = 3
    position: int = 1
    independent: tuple[int, ...] = ()


def column(*, width: int, key: int) -> int:
    """Where a key of the tree stands in an event: the pdf-class comes last."""
    return width if key == PDF_CLASS else key


def pdf_classes(model: TransitionModel) -> NDArray[np.int32]:
    """int32 [ids + 1]: pdf-class of each transition-id; entry 0 is -1."""
    classes = [-1]
    topology: Topology = model.topology
    bounds = zip(model.first_id[:-1].tolist(), model.first_id[1:].tolist(), strict=True)
    for (phone, state, _, _), (first, last) in zip(model.tuples.tolist(), bounds, strict=True):
        found = topology.states(phone)[state]
        for tid in range(first, last):
            loop = bool(model.is_self_loop[tid])
            classes.append(found.self_loop_pdf_class if loop else found.forward_pdf_class)
    return np.array(classes, np.int32)


def windows(phones: NDArray[np.int32], context: Context) -> Events:
    """int32 [phones, width]: windows around the phones of an utterance; 0 beyond its ends."""
    right = context.width - context.position - 1
    padded = np.pad(phones, (context.position, right))
    found = np.lib.stride_tricks.sliding_window_view(padded, context.width).copy()
    others = np.arange(context.width) != context.position
    found[np.isin(phones, context.independent)[:, None] & others] = ABSENT
    return found.astype(np.int32)


def frame_events(
    ids: NDArray[np.int32], parts: Segments, classes: NDArray[np.int32], context: Context
) -> Events:
    """int32 [frames, width + 1]: the events of an utterance, pdf-classes in the last column."""
    around = windows(parts.phones, context)[parts.by_frame()]
    return np.concatenate([around, classes[ids][:, None]], axis=1)


@dataclass(frozen=True)
class TreeStatistics:
    """events: int32 [n, width + 1], sorted, each once; sums: float64 [n, 1 + 2 dim]."""

    context: Context
    events: Events
    sums: Doubles

    @property
    def dim(self) -> int:
        """Dimension of the features."""
        return self.sums.shape[1] // 2

    @property
    def frames(self) -> float:
        """How many frames were counted."""
        return float(self.sums[:, 0].sum())


def statistics(context: Context, events: Events, features: Array) -> TreeStatistics:
    """Sums over frames: int32 [frames, width + 1] and float32 [frames, dim]."""
    doubles = features.astype(np.float64)
    rows = np.concatenate([np.ones((len(events), 1)), doubles, doubles**2], axis=1)
    return TreeStatistics(context, *_grouped(events, rows))


class Accumulator:
    """Adds up statistics; holds as many rows as there are different events, twice at most."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._parts: list[TreeStatistics] = []
        self._pending = 0

    def add(self, part: TreeStatistics) -> None:
        """Add the statistics of other frames."""
        self._parts.append(part)
        self._pending += len(part.events)
        # merged when what is new has grown as long as what was there: few sorts of long arrays
        if self._pending > max(50_000, len(self._parts[0].events)):
            self._merge()

    def __iadd__(self, other: Accumulator) -> Accumulator:
        for part in other._parts:
            self.add(part)
        return self

    def _merge(self) -> None:
        events = np.concatenate([part.events for part in self._parts])
        sums = np.concatenate([part.sums for part in self._parts])
        self._parts = [TreeStatistics(self._parts[0].context, *_grouped(events, sums))]
        self._pending = 0

    def result(self) -> TreeStatistics:
        """The statistics of all frames; at least one part must have been added."""
        self._merge()
        return self._parts[0]


def _grouped(events: Events, rows: Doubles) -> tuple[Events, Doubles]:
    if not len(events):
        return events, rows
    order = np.lexsort(events.T[::-1])
    events = events[order]
    new = np.any(events[1:] != events[:-1], axis=1)
    starts = np.concatenate([[0], np.flatnonzero(new) + 1])
    return events[starts], np.add.reduceat(rows[order], starts, axis=0)


def objective(sums: Doubles, floor: float = VARIANCE_FLOOR) -> Doubles:
    """Log-likelihood of frames under one diagonal Gaussian of their own: [..., 1 + 2 dim] → [...].

    Variances are floored (Kaldi's GaussClusterable::Objf); 0 where there are no frames.
    """
    dim = sums.shape[-1] // 2
    counts = sums[..., 0]
    share = 1.0 / np.where(counts > 0, counts, 1.0)[..., None]
    variances = sums[..., 1 + dim :] * share - (sums[..., 1 : 1 + dim] * share) ** 2
    floored = np.maximum(variances, floor)
    per_frame = -0.5 * (variances / floored + np.log(floored) + LOG_2PI).sum(axis=-1)
    return np.where(counts > 0, counts * per_frame, 0.0)


def leaves_of(root: Node, events: Events) -> NDArray[np.int64]:
    """int64 [n]: the answer of a tree for each event; -1 where it has none."""
    answers = np.full(len(events), -1)
    stack: list[tuple[Node | None, NDArray[np.int64]]] = [(root, np.arange(len(events)))]
    width = events.shape[1] - 1
    while stack:
        node, rows = stack.pop()
        if node is None or not len(rows):
            continue
        if not isinstance(node, Split | Table):
            answers[rows] = node.answer
            continue
        values = events[rows, column(width=width, key=node.key)]
        if isinstance(node, Split):
            yes = np.isin(values, node.values)
            stack += [(node.yes, rows[yes]), (node.no, rows[~yes])]
        else:
            stack += [(child, rows[values == value]) for value, child in enumerate(node.children)]
    return answers


def leaf_sums(tree: Tree, stats: TreeStatistics) -> Doubles:
    """[pdfs, 1 + 2 dim]: sums over the events of each leaf."""
    answers = leaves_of(tree.root, stats.events)
    size = 1 + max(leaf.answer for leaf in leaves(tree.root))
    sums = np.zeros((size, stats.sums.shape[1]))
    known = answers >= 0
    np.add.at(sums, answers[known], stats.sums[known])
    return sums


def likelihood(tree: Tree, stats: TreeStatistics, floor: float = VARIANCE_FLOOR) -> float:
    """Log-likelihood a frame with one Gaussian a leaf."""
    return float(objective(leaf_sums(tree, stats), floor).sum()) / stats.frames
