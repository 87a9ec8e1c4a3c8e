"""From stored frames to what the Gaussians see: spliced, transformed, adapted to the speaker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hadpsgd.features.deltas import delta_filters
from hadpsgd.gmm.workspace import Chunk, Workspace, spans

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Pipeline:
    """`context` frames on each side, spliced, times `matrix` [dim, spliced] (+ offset column).

    Deltas are such a matrix too. `transforms`: fMLLR by speaker [dim, dim + 1].
    """

    context: int
    matrix: Floats | None = None
    transforms: Mapping[str, Floats] = field(default_factory=dict)

    def unadapted(self, space: Workspace, chunk: Chunk) -> Floats:
        """float32 [frames, dim], without the speakers' transforms."""
        wide = spliced(space.frames(chunk), space.bounds(chunk), self.context)
        if self.matrix is None:
            return wide
        width = wide.shape[1]
        result = wide @ self.matrix[:, :width].T
        if self.matrix.shape[1] > width:
            result += self.matrix[:, width]
        return result

    def __call__(self, space: Workspace, chunk: Chunk) -> Floats:
        """float32 [frames, dim]."""
        return self.adapt(space, chunk, self.unadapted(space, chunk))

    def adapt(self, space: Workspace, chunk: Chunk, features: Floats) -> Floats:
        """Apply the speakers' transforms; speakers without one are left as they are."""
        if not self.transforms:
            return features
        result = features.copy()
        bounds = space.bounds(chunk)
        for speaker, first, last in spans(space.speakers[chunk.first : chunk.last]):
            if speaker in self.transforms:
                rows = slice(bounds[first], bounds[last])
                transform = self.transforms[speaker]
                result[rows] = features[rows] @ transform[:, :-1].T + transform[:, -1]
        return result


def spliced(frames: Floats, bounds: NDArray[np.int64], context: int) -> Floats:
    """Splice the frames of several utterances; their first and last frames are repeated."""
    if not context:
        return frames
    lengths = np.diff(bounds)
    first = np.repeat(bounds[:-1], lengths)[:, None]
    last = np.repeat(bounds[1:] - 1, lengths)[:, None]
    around = np.arange(len(frames))[:, None] + np.arange(-context, context + 1)
    return frames[np.clip(around, first, last)].reshape(len(frames), -1)


def deltas(*, dim: int, order: int = 2, window: int = 2) -> Pipeline:
    """Deltas up to `order` as a splicing and a matrix (Kaldi's add-deltas)."""
    reach = order * window
    matrix = np.zeros((order + 1, dim, 2 * reach + 1, dim), np.float32)
    for number, taps in enumerate(delta_filters(order=order, window=window)):
        middle = len(taps) // 2
        for each in range(dim):
            matrix[number, each, reach - middle : reach + middle + 1, each] = taps
    return Pipeline(reach, matrix.reshape((order + 1) * dim, (2 * reach + 1) * dim))
