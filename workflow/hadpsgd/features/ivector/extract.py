"""i-vectors of a data set: one a speaker, one an utterance, or one every few frames.

Speakers are worked on one after another, so that memory does not grow with the data.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.config.ivector import Ivector
from hadpsgd.features.frontend import Inputs
from hadpsgd.features.ivector.extractor import Extractor
from hadpsgd.features.ivector.statistics import gather, posteriors
from hadpsgd.features.ivector.ubm import DiagGmm
from hadpsgd.files import write_text
from hadpsgd.kaldi_io import Writer
from hadpsgd.parallel import map_in_order
from hadpsgd.progress import tracked

Array = NDArray[np.float64]
Matrix = NDArray[np.float32]
Found = tuple[list[tuple[str, Matrix]], int]
"""(speaker or utterance, vector or matrix) pairs, and the frames they were made of."""

NAMES = {"speaker": "ivectors_spk", "utterance": "ivectors_utt", "online": "ivector_online"}
PERIOD = "ivector_period"
_TOGETHER = 64  # utterances whose statistics are held: a speaker may have hours of them


def prior_scale(counts: Array, max_count: float) -> Array:
    """How much the prior weighs for counts [n]: beyond `max_count` it grows along (Kaldi)."""
    return np.maximum(counts, max_count) / max_count if max_count else np.ones_like(counts)


class Worker:
    """Makes the i-vectors of a speaker."""

    def __init__(
        self, inputs: Inputs, ubm: DiagGmm, extractor: Extractor, options: Ivector
    ) -> None:
        self.inputs, self.ubm, self.extractor, self.options = inputs, ubm, extractor, options

    def __call__(self, task: tuple[str, list[str]]) -> Found:
        """i-vectors of (speaker, utterances)."""
        by_kind = {"speaker": self._speaker, "utterance": self._utterances, "online": self._online}
        return by_kind[self.options.per](*task)

    def _estimate(self, counts: Array, sums: Array) -> Matrix:
        scales = prior_scale(counts.sum(axis=1), self.options.max_count)
        return self.extractor.estimate(counts, sums, scales).astype(np.float32)

    def _speaker(self, speaker: str, utterances: list[str]) -> Found:
        total = gather(self.ubm, self.inputs[utterances[0]], self.options)
        for utterance in utterances[1:]:
            total.add(gather(self.ubm, self.inputs[utterance], self.options))
        vector = self._estimate(total.counts[None], total.sums[None])[0]
        return [(speaker, vector)], total.frames

    def _utterances(self, speaker: str, utterances: list[str]) -> Found:
        del speaker
        found, frames = list[tuple[str, Matrix]](), 0
        for low in range(0, len(utterances), _TOGETHER):
            names = utterances[low : low + _TOGETHER]
            stats = [gather(self.ubm, self.inputs[name], self.options) for name in names]
            vectors = self._estimate(np.stack([s.counts for s in stats]),
                                     np.stack([s.sums for s in stats]))  # fmt: skip
            found += zip(names, vectors, strict=True)
            frames += sum(s.frames for s in stats)
        return found, frames

    def _online(self, speaker: str, utterances: list[str]) -> Found:
        del speaker
        history = Online(self.extractor, self.options)
        found, frames = [], 0
        for utterance in utterances:
            features = self.inputs[utterance]
            weights, _ = posteriors(self.ubm, features, self.options)
            found.append((utterance, history(weights, features)))
            frames += len(features)
        return found, frames


class Online:
    """i-vectors every `period` frames, each from all frames of the speaker up to its own.

    As Kaldi's ivector-extract-online2 without silence weighting, but solved exactly where that
    iterates.
    """

    def __init__(self, extractor: Extractor, options: Ivector) -> None:
        self._extractor, self._options = extractor, options
        self._counts = np.zeros(extractor.gaussians)
        self._linear = np.zeros(extractor.dim)

    def __call__(self, weights: Array, features: Matrix) -> Matrix:
        """float32 [ceil(frames / period), ivector] from scaled posteriors [frames, Gaussians]."""
        period = self._options.period
        # block k ends with frame k * period; what follows the last such frame is a block too
        before = period - 1
        blocks = -(-(before + len(features)) // period)
        after = blocks * period - before - len(features)
        padded = np.pad(weights, ((before, after), (0, 0))).reshape(blocks, period, -1)
        data = np.pad(features, ((before, after), (0, 0))).reshape(blocks, period, -1)
        counts = self._counts + np.cumsum(padded.sum(axis=1), axis=0)
        # a block's terms in single precision, their sums over the past in double
        sums = padded.astype(np.float32).transpose(0, 2, 1) @ data
        linear = self._linear + np.cumsum(self._extractor.linear_terms(sums), axis=0)
        self._counts, self._linear = counts[-1], linear[-1]
        vectors = -(-len(features) // period)
        counts, linear = counts[:vectors], linear[:vectors]
        scales = prior_scale(counts.sum(axis=1), self._options.max_count)
        quadratic = self._extractor.quadratic_terms(counts.astype(np.float32))
        return self._extractor.solve(linear, quadratic, scales).astype(np.float32)


def tasks(inputs: Inputs) -> Iterator[tuple[str, list[str]]]:
    """(speaker, utterances that have features), by speaker."""
    known = set(inputs.utterances)
    for speaker, utterances in inputs.data.speakers.items():
        present = [utterance for utterance in utterances if utterance in known]
        if present:
            yield speaker, present


def make_worker(
    inputs: Inputs, ubm: DiagGmm, extractor: Extractor, options: Ivector
) -> Callable[[tuple[str, list[str]]], Found]:
    """The function of one process."""
    return Worker(inputs, ubm, extractor, options)


def extract(
    inputs: Inputs, ubm: DiagGmm, extractor: Extractor, options: Ivector, out: Path, jobs: int
) -> int:
    """Write the i-vectors of a data set into `out`; returns how many vectors or matrices.

    The names are Kaldi's: ivectors_spk, ivectors_utt, or ivector_online with ivector_period.

    Raises:
        UserError: features are broken or do not fit.
    """
    out.mkdir(parents=True, exist_ok=True)
    for kind, name in NAMES.items():
        if kind != options.per:  # a reader must find one kind
            for old in [*out.glob(f"{name}.*"), out / PERIOD]:
                old.unlink(missing_ok=True)
    start, frames = time.monotonic(), 0
    name = NAMES[options.per]
    with ExitStack() as stack:
        writer = stack.enter_context(Writer(ark=out / f"{name}.ark", scp=out / f"{name}.scp"))
        make = partial(make_worker, inputs, ubm, extractor, options)
        speakers = list(tasks(inputs))
        results = map_in_order(make, speakers, jobs)
        for found, count in tracked(results, speakers, what="ivector", unit="speakers"):
            for key, array in found:
                writer.write(key, array)
            frames += count
    if options.per == "online":
        write_text(out / PERIOD, f"{options.period}\n")
    seconds = max(time.monotonic() - start, 1e-9)
    print(
        f"ivector: {writer.count} written, {frames / 360000:.2f} h, "
        f"{frames / 100 / seconds:,.0f}x real time",
        file=sys.stderr,
    )
    return writer.count
