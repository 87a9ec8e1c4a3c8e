"""A monophone model from nothing: its tree, one Gaussian for all pdfs, equal alignments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from hadpsgd.corpus.lang.topology import Topology
from hadpsgd.gmm import diag_gmm
from hadpsgd.gmm.diag_gmm import Mixtures
from hadpsgd.gmm.em import Passes
from hadpsgd.gmm.equal_alignment import equal_alignment
from hadpsgd.gmm.event_map import PDF_CLASS, Leaf, Node, Table, Tree
from hadpsgd.gmm.pipeline import Pipeline
from hadpsgd.gmm.update import MIN_VARIANCE
from hadpsgd.gmm.workspace import Chunk, Workspace


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
    return Tree(width=1, position=0, root=Table(0, tuple(children)))


def global_mixtures(passes: Passes, num_pdfs: int) -> Mixtures:
    """One Gaussian a pdf, with the mean and variance of all frames."""
    make = partial(_summer, passes.space, passes.pipeline)
    count, first, second = 0.0, np.zeros(1), np.zeros(1)
    for frames, sums, squares in passes.each(make, "mean and variance"):
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
    """Spread the frames of each utterance over a random path of its graph; returns failures."""
    make = partial(_spreader, passes.space, seed)
    return sum(passes.each(make, "equal alignment"))


def _spreader(space: Workspace, seed: int) -> Callable[[Chunk], int]:
    def spread(chunk: Chunk) -> int:
        bounds = space.bounds(chunk)
        ids = np.zeros(bounds[-1], np.int32)
        failures = 0
        names = space.names[chunk.first : chunk.last]
        for u, (name, graph) in enumerate(zip(names, space.graphs(chunk), strict=True)):
            length = int(bounds[u + 1] - bounds[u])
            # by name, as in Kaldi: a path does not hang on what other utterances there are
            random = np.random.default_rng((seed, crc32(name.encode())))
            found = equal_alignment(graph, length, random)
            if found is None:
                failures += 1
            else:
                ids[bounds[u] : bounds[u + 1]] = found
        space.store_alignment(chunk, ids)
        return failures

    return spread
