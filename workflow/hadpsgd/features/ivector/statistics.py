"""Statistics of utterances under the UBM: what the extractor is trained on and applied to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.config.ivector import Ivector
from hadpsgd.features.frontend import Inputs
from hadpsgd.features.ivector.ubm import DiagGmm
from hadpsgd.parallel import map_in_order
from hadpsgd.progress import tracked

Array = NDArray[np.float64]
Matrix = NDArray[np.float32]

_PIECE = 16


@dataclass(kw_only=True)
class Statistics:
    """Sums over frames, posteriors scaled.

    counts: [Gaussians]; sums: [Gaussians, dim]; scatter: [Gaussians, dim, dim] where the
    covariances are wanted; log_likelihood: under the UBM; frames: number of them.
    """

    counts: Array
    sums: Array
    scatter: Array | None
    log_likelihood: float
    frames: int

    def add(self, other: Statistics) -> None:
        """Add those of other frames; the scatter is left to the caller."""
        self.counts += other.counts
        self.sums += other.sums
        self.log_likelihood += other.log_likelihood
        self.frames += other.frames


def posteriors(model: DiagGmm, features: Matrix, options: Ivector) -> tuple[Array, float]:
    """Scaled posteriors, float64 [frames, Gaussians], and the log-likelihood."""
    found, log_likelihood = model.posteriors(features, top=options.top, min_post=options.min_post)
    return found.astype(np.float64) * options.posterior_scale, log_likelihood


def gather(
    model: DiagGmm, features: Matrix, options: Ivector, *, scatter: bool = False
) -> Statistics:
    """Statistics of an utterance's features [frames, dim]."""
    weights, log_likelihood = posteriors(model, features, options)
    double = features.astype(np.float64)
    return Statistics(
        counts=weights.sum(axis=0),
        sums=weights.T @ double,
        scatter=scatter_of(weights, double) if scatter else None,
        log_likelihood=log_likelihood,
        frames=len(features),
    )


def scatter_of(weights: Array, features: Array) -> Array:
    """Weighted scatter of every Gaussian, [Gaussians, dim, dim]."""
    dim = features.shape[1]
    rows, columns = np.tril_indices(dim)
    triangle = weights.T @ (features[:, rows] * features[:, columns])
    full = np.empty((len(triangle), dim, dim))
    full[:, rows, columns] = triangle
    full[:, columns, rows] = triangle
    return full


def _worker(
    inputs: Inputs, model: DiagGmm, options: Ivector, scatter: bool
) -> Callable[[list[str]], tuple[list[tuple[str, Statistics]], Array | None]]:
    def compute(piece: list[str]) -> tuple[list[tuple[str, Statistics]], Array | None]:
        found: list[tuple[str, Statistics]] = []
        total: Array | None = None
        for utterance in piece:
            stats = gather(model, inputs[utterance], options, scatter=scatter)
            if stats.scatter is not None:
                total = stats.scatter if total is None else total + stats.scatter
                stats.scatter = None
            found.append((utterance, stats))
        return found, total

    return compute


def of_utterances(
    inputs: Inputs, model: DiagGmm, options: Ivector, jobs: int, *, scatter: bool = False
) -> Iterator[tuple[list[tuple[str, Statistics]], Array | None]]:
    """Statistics of all utterances in order, by pieces; with each the piece's summed scatter."""
    names = inputs.utterances
    pieces = (names[start : start + _PIECE] for start in range(0, len(names), _PIECE))
    found = map_in_order(partial(_worker, inputs, model, options, scatter), pieces, jobs)
    return tracked(
        found, names, what="statistics", unit="utterances", weight=lambda piece: len(piece[0])
    )


class Spool:
    """Utterances' statistics on disk, read again in every iteration; one batch is in memory."""

    def __init__(self, path: Path, *, gaussians: int, dim: int) -> None:
        """`path` is a temporary file's."""
        self._path = path
        self._shape = (gaussians, 1 + dim)
        self._file = path.open("wb")
        self.count = 0

    def append(self, stats: Statistics) -> None:
        """Write an utterance."""
        row = np.concatenate([stats.counts[:, None], stats.sums], axis=1)
        self._file.write(np.ascontiguousarray(row).data)
        self.count += 1

    def batches(self, size: int) -> Iterator[tuple[Array, Array]]:
        """Counts [n, Gaussians] and sums [n, Gaussians, dim] of up to `size` utterances each."""
        self._file.flush()
        row_bytes = 8 * self._shape[0] * self._shape[1]
        with self._path.open("rb") as file:
            while data := file.read(size * row_bytes):
                rows = np.frombuffer(data).reshape(-1, *self._shape)
                yield rows[:, :, 0], np.ascontiguousarray(rows[:, :, 1:])

    def close(self) -> None:
        """Remove the file."""
        self._file.close()
        self._path.unlink(missing_ok=True)
