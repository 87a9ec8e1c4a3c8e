"""An utterance at another tempo: features stretched in time, labels with them.

For small corpora: speech at 0.9 and 1.1 of its tempo beside the original, made of features, without
the change of pitch of audio at another speed (`hadpsgd.corpus.perturb`). So it serves imported
features too, which have no audio.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Label = TypeVar("Label", bound=np.integer)


@dataclass(frozen=True, kw_only=True)
class Tempo:
    """Where in an utterance the frames of its copy at a tempo lie.

    The copy has round(frames / tempo) frames; a tempo above 1 is faster, so shorter.
    """

    frames: int
    """Of the utterance."""
    tempo: float

    @cached_property
    def _places(self) -> NDArray[np.float64]:
        copied = max(1, round(self.frames / self.tempo))
        # frame centres keep their share of the utterance
        places = (np.arange(copied) + 0.5) * self.frames / copied - 0.5
        return np.clip(places, 0, self.frames - 1)

    def stretched(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Features [frames, dim] between frames, by cubics whose slopes are those of neighbours.

        Catmull and Rom's ("A class of local interpolating splines", 1974); beyond the ends the
        first and the last frame go on. Straight lines would blur what changes fast.
        """
        if self.tempo == 1.0:
            return features
        last = self.frames - 1
        below = self._places.astype(np.int64)
        t = (self._places - below).astype(np.float32)[:, None]
        weights = (
            ((2 - t) * t - 1) * t / 2,
            ((3 * t - 5) * t * t + 2) / 2,
            ((4 - 3 * t) * t + 1) * t / 2,
            (t - 1) * t * t / 2,
        )
        result = np.zeros((len(below), features.shape[1]), np.float32)
        for offset, weight in enumerate(weights, start=-1):
            result += weight * features[np.clip(below + offset, 0, last)]
        return result

    def nearest(self, labels: NDArray[Label]) -> NDArray[Label]:
        """Labels [frames], or numbers of vectors, of the nearest frame."""
        return labels if self.tempo == 1.0 else labels[np.rint(self._places).astype(np.int64)]
