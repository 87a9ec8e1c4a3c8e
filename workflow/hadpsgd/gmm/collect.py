"""Statistics of a whole data set, chunks over processes: trees, LDA, MLLT, FMLLR."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hadpsgd.gmm import fmllr, lda, mllt
from hadpsgd.gmm.adaptation import Adaptation, Estimation, Part, Speakers
from hadpsgd.gmm.context_stats import (
    Accumulator,
    Context,
    TreeStatistics,
    frame_events,
    pdf_classes,
    statistics,
)
from hadpsgd.gmm.diag_gmm import Mixtures
from hadpsgd.gmm.em import Passes
from hadpsgd.gmm.model import Model
from hadpsgd.gmm.partial_sums import Adder
from hadpsgd.gmm.phone_segments import segments
from hadpsgd.gmm.pipeline import Pipeline
from hadpsgd.gmm.precisions import frame_terms, from_alignment
from hadpsgd.gmm.transition_model import TransitionModel
from hadpsgd.gmm.workspace import Chunk, Workspace, spans

Quiet = tuple[int, ...]


def utterances_of(space: Workspace, chunk: Chunk) -> Iterator[tuple[slice, NDArray[np.int32]]]:
    """Rows and transition-ids of the aligned utterances of a chunk.

    The last frame is left out where the alignment is one shorter than the features.
    """
    ids, bounds = space.alignment(chunk), space.bounds(chunk).tolist()
    for begin, end in pairwise(bounds):
        if end > begin and ids[begin] > 0:
            stop = end if ids[end - 1] > 0 else end - 1
            yield slice(begin, stop), ids[begin:stop]


def tree_statistics(passes: Passes, model: TransitionModel, context: Context) -> TreeStatistics:
    """Sums by phone window and state; at least one utterance must be aligned."""
    make = partial(_tree_statistics, passes.space, passes.pipeline, model, context)
    return passes.total(Accumulator, make, "statistics of the tree").result()


def _tree_statistics(
    space: Workspace, pipeline: Pipeline, model: TransitionModel, context: Context
) -> Adder[Accumulator]:
    classes = pdf_classes(model)

    def collect(chunk: Chunk, sums: Accumulator) -> None:
        features = pipeline(space, chunk)
        events = [np.zeros((0, context.width + 1), np.int32)]
        rows = [np.zeros(0, np.int64)]
        for place, ids in utterances_of(space, chunk):
            events.append(frame_events(ids, segments(model, ids), classes, context))
            rows.append(np.arange(place.start, place.stop))
        seen = features[np.concatenate(rows)]
        sums.add(statistics(context, np.concatenate(events), seen))

    return collect


def lda_sums(passes: Passes, model: TransitionModel, quiet: Quiet) -> lda.Sums:
    """Sums of spliced frames by pdf, without those of quiet phones."""
    make = partial(_lda_sums, passes.space, passes.pipeline, model, quiet)
    dim = passes.space.dim * (2 * passes.pipeline.context + 1)
    zero = partial(lda.Sums.zeros, classes=model.num_pdfs, dim=dim)
    return passes.total(zero, make, "statistics of LDA")


def _lda_sums(
    space: Workspace, pipeline: Pipeline, model: TransitionModel, quiet: Quiet
) -> Adder[lda.Sums]:
    def collect(chunk: Chunk, sums: lda.Sums) -> None:
        pdfs = from_alignment(model, space.alignment(chunk), quiet)
        sums += lda.sums_of(pipeline(space, chunk), pdfs, model.num_pdfs)

    return collect


def mllt_sums(passes: Passes, model: Model, quiet: Quiet) -> mllt.Sums:
    """Sums for a new MLLT, without frames of quiet phones."""
    make = partial(_mllt_sums, passes.space, passes.pipeline, model, quiet)
    mixtures = model.mixtures
    zero = partial(mllt.Sums.zeros, gaussians=len(mixtures.weights), dim=mixtures.dim)
    return passes.total(zero, make, "statistics of MLLT")


def _mllt_sums(
    space: Workspace, pipeline: Pipeline, model: Model, quiet: Quiet
) -> Adder[mllt.Sums]:
    def collect(chunk: Chunk, sums: mllt.Sums) -> None:
        pdfs = from_alignment(model.transitions, space.alignment(chunk), quiet)
        mllt.sums_of(model.mixtures, pipeline(space, chunk), pdfs, sums)

    return collect


def adapt(
    passes: Passes, model: Model, quiet: Quiet, least: float, aligner: Mixtures | None = None
) -> Adaptation:
    """FMLLR transforms of all speakers, on top of those that the pipeline has.

    Posteriors come from `aligner` on unadapted features where it is given (final.alimdl).
    """
    counts = Counter(passes.space.speakers)
    estimation = Estimation(utterances=counts, min_count=least)
    make = partial(_adapter, passes.space, passes.pipeline, model, quiet, aligner, estimation)
    zero = partial(Speakers.nobody, model.mixtures.dim)
    speakers = passes.total(zero, make, "statistics of FMLLR")
    found = estimation.finish(speakers, passes.jobs)
    before = passes.pipeline.transforms
    for speaker, inner in before.items():
        if speaker in found.transforms:
            composed = fmllr.compose(found.transforms[speaker], inner)
            found.transforms[speaker] = composed.astype(np.float32)
    return found


def _adapter(
    space: Workspace,
    pipeline: Pipeline,
    model: Model,
    quiet: Quiet,
    aligner: Mixtures | None,
    estimation: Estimation,
) -> Adder[Speakers]:
    def collect(chunk: Chunk, speakers: Speakers) -> None:
        plain = pipeline.unadapted(space, chunk)
        features = pipeline.adapt(space, chunk, plain)
        pdfs = from_alignment(model.transitions, space.alignment(chunk), quiet)
        seen = None if aligner is None else plain
        terms = frame_terms(model.mixtures, features, pdfs, aligner, seen)
        bounds = space.bounds(chunk)
        for speaker, first, last in spans(space.speakers[chunk.first : chunk.last]):
            rows = slice(bounds[first], bounds[last])
            own = type(terms)(*(values[rows] for values in terms))
            speakers.add(Part(speaker, last - first, fmllr.sums_of(features[rows], own)))
        estimation.settle(speakers)

    return collect
