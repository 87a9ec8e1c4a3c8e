"""Passes over the data of a training: alignment and accumulation, chunks over processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hadpsgd.gmm import viterbi
from hadpsgd.gmm.diag_gmm import Array, Mixtures
from hadpsgd.gmm.fit import fit
from hadpsgd.gmm.likelihood import log_likelihoods
from hadpsgd.gmm.model import Model
from hadpsgd.gmm.partial_sums import Adder, Sums, keeper, shares, take
from hadpsgd.gmm.pipeline import Pipeline
from hadpsgd.gmm.statistics import Statistics, accumulate
from hadpsgd.gmm.training_graph import Graph
from hadpsgd.gmm.transition_model import TransitionModel
from hadpsgd.gmm.update import scaled_scores
from hadpsgd.gmm.workspace import Chunk, Workspace
from hadpsgd.parallel import map_in_order
from hadpsgd.progress import Progress

ACOUSTIC_SCALE = 0.1


@dataclass(frozen=True, kw_only=True)
class Search:
    """How utterances are aligned.

    beam: paths that fall further behind the best one are dropped; utterances that have none left
    are retried with retry_beam, and fail where that does not do either. boost: factor on the
    weights of the pdfs of `quiet` phones.
    """

    beam: float = 10.0
    retry_beam: float = 40.0
    boost: float = 1.0
    quiet: tuple[int, ...] = ()


@dataclass(kw_only=True)
class Outcome:
    """Of an alignment pass: scaled log-probability a frame and what did not align.

    needed: the beam that each retried utterance needs; failed: why each other one has none; fits:
    how well each one fits (`fit`), of the last pass of a stage.
    """

    score: float = 0.0
    frames: int = 0
    needed: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    per_frame: dict[str, float] = field(default_factory=dict)
    fits: dict[str, float] = field(default_factory=dict)

    def add(self, other: Outcome) -> None:
        """Count other utterances too."""
        self.score += other.score
        self.frames += other.frames
        self.needed |= other.needed
        self.failed |= other.failed
        self.per_frame |= other.per_frame
        self.fits |= other.fits


Part = TypeVar("Part")


@dataclass(frozen=True)
class Passes:
    """A data set, how its frames are seen, and the processes that pass over it."""

    space: Workspace
    pipeline: Pipeline
    jobs: int

    def each(self, make: Callable[[], Callable[[Chunk], Part]], what: str) -> Iterator[Part]:
        """What a function makes of every chunk, in order; `make` gives it to each process.

        `what` says in lines of progress what it is.
        """
        progress = Progress(what, len(self.space), "utterances")
        chunks = self.space.chunks()
        parts = map_in_order(make, self.space.chunks(), self.jobs)
        for chunk, part in zip(chunks, parts, strict=True):
            yield part
            progress.add(chunk.last - chunk.first)

    def total(self, zero: Callable[[], Sums], make: Callable[[], Adder[Sums]], what: str) -> Sums:
        """Sums over all chunks, from `zero()`; `make` gives each process what adds to them."""
        progress = Progress(what, len(self.space), "utterances")
        parts = shares(list(self.space.chunks()))
        kept = map_in_order(partial(keeper, zero, make, self.space.folder), parts, self.jobs)
        result = zero()
        for part, path in zip(parts, kept, strict=True):
            result += take(path)
            progress.add(part[-1].last - part[0].first)
        return result

    def align(self, model: Model, search: Search, seen: Pipeline | None = None) -> Outcome:
        """Align every utterance and store its transition-ids (0 where it failed)."""
        mixtures = boosted(model, search.quiet, search.boost)
        mixtures.parameters  # noqa: B018  computed before processes start, which then share it
        transitions = model.transitions
        make = partial(_aligner, self.space, seen or self.pipeline, mixtures, transitions, search)
        outcome = Outcome()
        for part in self.each(make, "alignment"):
            outcome.add(part)
        return outcome

    def fits(self, model: Model) -> dict[str, float]:
        """How well the utterances that are aligned fit (`fit`)."""
        model.mixtures.parameters  # noqa: B018  shared, as in align
        make = partial(_fitter, self.space, self.pipeline, model)
        return {name: value for part in self.each(make, "fit") for name, value in part.items()}

    def accumulate(self, model: Model, observed: Pipeline | None = None) -> Statistics:
        """Statistics of the aligned frames; of `observed` ones with this pipeline's posteriors."""
        make = partial(_accumulator, self.space, self.pipeline, model, observed)
        dim = model.mixtures.dim
        if observed is not None and observed.matrix is not None:
            dim = len(observed.matrix)
        gaussians, num_ids = len(model.mixtures.weights), model.transitions.num_ids
        zero = partial(Statistics.zeros, gaussians=gaussians, dim=dim, num_ids=num_ids)
        model.mixtures.parameters  # noqa: B018  shared, as in align
        return self.total(zero, make, "statistics")


def _aligner(
    space: Workspace,
    pipeline: Pipeline,
    mixtures: Mixtures,
    transitions: TransitionModel,
    search: Search,
) -> Callable[[Chunk], Outcome]:
    scores = scaled_scores(transitions)

    def align_chunk(chunk: Chunk) -> Outcome:
        features, bounds = pipeline(space, chunk), space.bounds(chunk)
        graphs = space.graphs(chunk)

        def emission(u: int) -> Array:
            return emissions(mixtures, graphs[u], features[bounds[u] : bounds[u + 1]])

        # the last beam only says why an utterance fails
        beams = (search.beam, search.retry_beam, math.inf)
        found = viterbi.align(graphs, np.diff(bounds), emission, scores, beams)
        names = space.names[chunk.first : chunk.last]
        outcome, ids = sort_out(names, bounds, graphs, found, search)
        space.store_alignment(chunk, ids)
        return outcome

    return align_chunk


def _fitter(
    space: Workspace, pipeline: Pipeline, model: Model
) -> Callable[[Chunk], dict[str, float]]:
    pdf_of_id = model.transitions.pdf

    def fit_chunk(chunk: Chunk) -> dict[str, float]:
        features, ids = pipeline(space, chunk), space.alignment(chunk)
        found, bounds = {}, space.bounds(chunk)
        for u, name in enumerate(space.names[chunk.first : chunk.last]):
            here = slice(bounds[u], bounds[u + 1])
            if len(ids[here]) and ids[here][0]:  # 0: not aligned
                found[name] = fit(model.mixtures, features[here], pdf_of_id[ids[here]])
        return found

    return fit_chunk


def emissions(mixtures: Mixtures, graph: Graph, features: Array) -> Array:
    """Scaled log-likelihoods of a graph's states: float32 [frames, states]."""
    used, column = np.unique(graph.pdfs[1:], return_inverse=True)
    likelihoods = log_likelihoods(mixtures, features, used)
    likelihoods *= ACOUSTIC_SCALE
    return by_state(likelihoods, column)


def by_state(likelihoods: Array, column: NDArray[np.integer]) -> Array:
    """float32 [frames, states]: of the start nothing, of state s the likelihoods' column[s - 1]."""
    result = np.empty((len(likelihoods), 1 + len(column)), np.float32)
    result[:, 0] = 0.0
    np.take(likelihoods, column, axis=1, out=result[:, 1:])
    return result


def _reason(graph: Graph, frames: int) -> str:
    """Why an utterance has no alignment."""
    if graph.is_empty:
        return "no pronunciation of its transcript"
    if viterbi.is_too_long(graph, frames):
        return f"{frames} frames in {len(graph.pdfs)} states are too many: it needs segments"
    return f"{frames} frames are too few for its transcript"


def sort_out(
    names: Sequence[str],
    bounds: NDArray[np.int64],
    graphs: Sequence[Graph],
    found: Sequence[viterbi.Alignment | None],
    search: Search,
) -> tuple[Outcome, NDArray[np.int32]]:
    """What Viterbi found, counted, and transition-ids of all frames (0 where there are none).

    bounds: [utterances + 1], the first frame of each. Viterbi ran with an infinite beam at last.
    """
    outcome = Outcome()
    ids = np.zeros(bounds[-1], np.int32)
    for u, (name, result) in enumerate(zip(names, found, strict=True)):
        if result is None:
            outcome.failed[name] = _reason(graphs[u], int(bounds[u + 1] - bounds[u]))
        elif result.gap > search.retry_beam:
            outcome.failed[name] = f"a beam of {result.gap:.0f} would be needed"
        else:
            ids[bounds[u] : bounds[u + 1]] = result.ids
            outcome.score += result.score
            outcome.frames += len(result.ids)
            outcome.per_frame[name] = result.score / len(result.ids)
            if result.gap > search.beam:
                outcome.needed[name] = result.gap
    return outcome, ids


def boosted(model: Model, phones: Sequence[int], boost: float) -> Mixtures:
    """Mixtures whose weights are raised for the pdfs of `phones` (Kaldi's gmm-boost-silence)."""
    mixtures = model.mixtures
    if boost == 1.0 or not phones:
        return mixtures
    pdfs = pdfs_of(model.transitions, phones)
    raised = mixtures.gconsts.copy()
    raised[np.isin(mixtures.pdf_of, pdfs)] += np.float32(np.log(boost))
    return Mixtures(
        mixtures.offsets, raised, mixtures.weights, mixtures.means_invvars, mixtures.inv_vars
    )


def pdfs_of(model: TransitionModel, phones: Sequence[int]) -> NDArray[np.int32]:
    """The pdfs that phones use."""
    return np.unique(model.tuples[np.isin(model.tuples[:, 0], phones), 2:])


def _accumulator(
    space: Workspace, pipeline: Pipeline, model: Model, observed: Pipeline | None
) -> Adder[Statistics]:
    pdf_of_id = model.transitions.pdf

    def accumulate_chunk(chunk: Chunk, sums: Statistics) -> None:
        features, ids = pipeline(space, chunk), space.alignment(chunk)
        other = None if observed is None else observed(space, chunk)
        accumulate(model.mixtures, features, ids, pdf_of_id, other, sums)

    return accumulate_chunk
