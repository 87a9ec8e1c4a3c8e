"""Copies of utterances: features of the changed audio, labels of the utterance itself.

Where in an utterance a state is said depends neither on the speed nor on noise (the direct path of
a room has no delay), so labels are taken from the alignment of the original, at the time that each
frame had there. Kaldi aligns perturbed speech anew; alignments that are imported have none of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.config import Config
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.corpus.names import copies as copies_of
from hadpsgd.errors import UserError
from hadpsgd.features.fusion import Fusion, Static

_CENTRE = 1.25  # of the first window of 25 ms, in frames of 10 ms
_MARGIN = 2  # frames by which rounding may change the length of an utterance


def labels_at(labels: NDArray[np.int32], *, speed: float, frames: int) -> NDArray[np.int32]:
    """Labels of an utterance [original frames] as those of its copy at a speed [frames].

    Raises:
        UserError: the copy is not as long as an utterance of that speed is.
    """
    expected = (len(labels) + 2 * _CENTRE - 1) / speed - 2 * _CENTRE + 1
    if abs(frames - expected) > _MARGIN:
        raise UserError(
            f"{frames} frames at speed {speed:g} and an alignment of {len(labels)} at 1",
            fix="Make perturbed data and features of it anew",
        )
    places = np.rint((np.arange(frames) + _CENTRE) * speed - _CENTRE).astype(np.int64)
    return labels[np.clip(places, 0, len(labels) - 1)]


class Copies:
    """Those of `corpus.speeds`, at speeds but 1, and of `corpus.noise`."""

    def __init__(self, config: Config, streams: Path, copies: DataDir) -> None:
        """Open their features.

        Raises:
            UserError: too many lack features.
        """
        self.fusion = Fusion(config, streams, copies)
        self._copies, self._there = copies, set(self.fusion.utterances)
        self._corpus = config.corpus

    def __call__(
        self, utterance: str, labels: NDArray[np.int32]
    ) -> Iterator[tuple[Static, NDArray[np.int32]]]:
        """(streams, labels) of the copies of an utterance.

        Raises:
            UserError: a copy is missing or has another length (names it).
        """
        corpus = self._corpus
        for name, speed in copies_of(utterance, corpus.speeds, corpus.noise.copies):
            if name not in self._copies.utterances:
                raise UserError(
                    f"no utterance {name}",
                    where=self._copies.path,
                    fix="Make perturbed data anew (`hadpsgd perturb`)",
                )
            if name not in self._there:  # too short for features: counted and named before
                continue
            streams = self.fusion.static(name)
            try:
                yield streams, labels_at(labels, speed=speed, frames=streams.frames)
            except UserError as error:
                raise UserError(str(error), where=f"utterance {name}") from None
