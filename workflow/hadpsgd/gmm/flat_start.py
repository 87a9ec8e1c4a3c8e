"""A monophone model from nothing: its tree, one Gaussian for all pdfs, equal alignments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hadpsgd.corpus.lang.topology import Topology
from hadpsgd.gmm import diag_gmm
from hadpsgd.gmm.diag_gmm import Mixtures
from hadpsgd.gmm.em import Passes
from hadpsgd.gmm.event_map import PDF_CLASS, Leaf, Node, Table, Tree
from hadpsgd.gmm.pipeline import Pipeline
from hadpsgd.gmm.training_graph import START, Graph
from hadpsgd.gmm.update import MIN_VARIANCE
from hadpsgd.gmm.viterbi import kaldi_order
from hadpsgd.gmm.workspace import Chunk, Workspace
from hadpsgd.parallel import map_in_order

_TRIES = 10


def monophone_tree(sets: Sequence[Sequence[int]], topology: Topology) -> Tree:
    """A tree without context; phones of a set (sets.int) share their pdfs.

    Kaldi's MonophoneContextDependencyShared.
    """
    children: list[Node | None] = [None] * (int(topology.phones.max()) + 1)
    pdf = 0
    for phones in sets:
        size = topology.num_pdf_classes(phones[0])
        node = Table(PDF_CLASS, tuple(Leaf(pdf + number) for number in range(size)))
        pdf += size
        for phone in phones:
            children[phone] = node
    return Tree(1, 0, Table(0, tuple(children)))


def global_mixtures(passes: Passes, num_pdfs: int) -> Mixtures:
    """One Gaussian a pdf, with the mean and variance of all frames."""
    make = partial(_summer, passes.space, passes.pipeline)
    count, first, second = 0.0, np.zeros(1), np.zeros(1)
    for frames, sums, squares in map_in_order(make, passes.space.chunks(), passes.jobs):
        count, first, second = count + frames, first + sums, second + squares
    mean = first / count
    variance = np.maximum(second / count - mean**2, MIN_VARIANCE)
    ones = np.ones((num_pdfs, 1))
    return diag_gmm.make(np.ones(num_pdfs, int), np.ones(num_pdfs), ones * mean, ones * variance)


Sums = tuple[int, NDArray[np.float64], NDArray[np.float64]]


def _summer(space: Workspace, pipeline: Pipeline) -> Callable[[Chunk], Sums]:
    def sums(chunk: Chunk) -> Sums:
        features = pipeline(space, chunk).astype(np.float64)
        return len(features), features.sum(axis=0), (features**2).sum(axis=0)

    return sums


def align_equally(passes: Passes, seed: int) -> int:
    """Spread the frames of each utterance over a random path of its graph; returns failures.

    Kaldi's align-equal-compiled.
    """
    make = partial(_spreader, passes.space, seed)
    return sum(map_in_order(make, passes.space.chunks(), passes.jobs))


def _spreader(space: Workspace, seed: int) -> Callable[[Chunk], int]:
    def spread(chunk: Chunk) -> int:
        bounds = space.bounds(chunk)
        ids = np.zeros(bounds[-1], np.int32)
        failures = 0
        random = np.random.default_rng((seed, chunk.first))
        for u, graph in enumerate(space.graphs(chunk)):
            length = int(bounds[u + 1] - bounds[u])
            found = equal_alignment(graph, length, random)
            if found is None:
                failures += 1
            else:
                ids[bounds[u] : bounds[u + 1]] = found
        space.store_alignment(chunk, ids)
        return failures

    return spread


def equal_alignment(
    graph: Graph, frames: int, random: np.random.Generator
) -> NDArray[np.int32] | None:
    """Transition-ids of a random path, its states about equally long; None if none is that short.

    int32 [frames], in Kaldi's order.
    """
    if graph.is_empty:
        return None
    onward: list[list[tuple[int, int]]] = [[] for _ in graph.pdfs]
    loops = np.zeros(len(graph.pdfs), np.int32)
    for source, target, tid in graph.arcs[["source", "target", "id"]].tolist():
        if source == target:
            loops[source] = tid
        else:
            onward[source].append((target, tid))
    ends = {int(row["source"]): int(row["id"]) for row in graph.ends}
    for attempt in range(_TRIES + 1):
        path = _walk(onward, ends, frames, random) if attempt < _TRIES else _shortest(onward, ends)
        if path is not None and len(path) <= frames:
            break
    else:
        return None
    states = np.array([state for state, _ in path])
    taken = np.array([tid for _, tid in path], np.int32)
    # what exceeds a frame a state goes to the states that have a self-loop
    spare = frames - len(path)
    holding = np.flatnonzero(loops[states] > 0)
    if spare and not len(holding):
        return None
    lengths = np.ones(len(path), np.int64)
    if spare:
        lengths[holding] += spare // len(holding)
        lengths[holding[: spare % len(holding)]] += 1
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    ids = np.repeat(loops[states], lengths)
    is_loop = np.ones(frames, bool)
    is_loop[starts] = False
    ids[starts] = taken
    return kaldi_order(ids, is_loop, ends[int(states[-1])])


Path = list[tuple[int, int]]
Onward = list[list[tuple[int, int]]]


def _walk(
    onward: Onward, ends: dict[int, int], limit: int, random: np.random.Generator
) -> Path | None:
    path: Path = []
    state = START
    while len(path) <= limit:
        # ending is one more way on
        choices = len(onward[state]) + (state in ends)
        if not choices:
            return None
        choice = int(random.integers(choices))
        if choice == len(onward[state]):
            return path
        path.append(onward[state][choice])
        state = path[-1][0]
    return None


def _shortest(onward: Onward, ends: dict[int, int]) -> Path | None:
    came: dict[int, tuple[int, int]] = {START: (-1, 0)}
    queue = [START]
    for state in queue:  # grows while it is read
        if state in ends:
            path: Path = []
            while state != START:
                before, tid = came[state]
                path.append((state, tid))
                state = before
            return path[::-1]
        for target, tid in onward[state]:
            if target not in came:
                came[target] = (state, tid)
                queue.append(target)
    return None
