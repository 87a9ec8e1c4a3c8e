"""Streams of features as the model reads them: each from a folder, with its normalisation.

A stream lies in `<streams>/<name>/<set>/`, as Kaldi's archives. `hadpsgd.features.fusion` lists
the streams and joins them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hadpsgd.config.features import Features
from hadpsgd.errors import UserError
from hadpsgd.features import cmvn
from hadpsgd.features.deltas import add_deltas
from hadpsgd.kaldi_io import Scp

Matrix = NDArray[np.float32]


class Framewise(Protocol):
    """One part of the model's input that has a row for every frame; i-vectors follow its frames."""

    framewise: bool
    deltas: tuple[int, int]
    """Order and window of the deltas that `read` appends to `static`; order 0 is none."""

    def __contains__(self, utterance: object) -> bool:
        """Whether there is something for the utterance."""

    def read(self, utterance: str, frames: int | None = None) -> Matrix:
        """float32 [frames, dim].

        Raises:
            UserError: what is stored is broken or does not fit; names the utterance.
        """

    def static(self, utterance: str) -> Matrix:
        """float32 [frames, dim] without deltas.

        Raises:
            UserError: as `read`.
        """


def opened(path: Path, stage: str) -> Scp:
    """A stream's script file.

    Raises:
        UserError: it is missing; says which command makes it.
    """
    if not path.is_file():
        raise UserError("no such file", where=path, fix=f"`hadpsgd {stage}` makes it")
    return Scp(path)


class Archived:
    """Features that are used as they are stored (fmllr)."""

    framewise = True
    deltas = (0, 0)

    def __init__(self, folder: Path, config: Features, speaker_of: Mapping[str, str]) -> None:
        """`folder` has feats.scp; the other arguments are those of every stream."""
        del config, speaker_of
        self._features = opened(folder / "feats.scp", "features")

    def __contains__(self, utterance: object) -> bool:
        return utterance in self._features

    def read(self, utterance: str, frames: int | None = None) -> Matrix:
        """The stored matrix."""
        del frames
        return self.static(utterance)

    def static(self, utterance: str) -> Matrix:
        """The stored matrix."""
        return self._features[utterance].astype(np.float32, copy=False)


class LogmelStream:
    """Log mel energies: normalised by speaker, then deltas appended."""

    framewise = True

    def __init__(self, folder: Path, config: Features, speaker_of: Mapping[str, str]) -> None:
        """`folder` has feats.scp, and cmvn.scp unless `config.normalise` is none."""
        self._features = opened(folder / "feats.scp", "features")
        self._config = config
        self.deltas = (config.logmel.delta_order, config.logmel.delta_window)
        self._speaker_of = speaker_of
        self._statistics: Mapping[str, NDArray] = (
            {} if config.normalise == "none" else opened(folder / "cmvn.scp", "features")
        )
        self._last: tuple[str, NDArray] = ("", np.zeros((2, 0)))

    def __contains__(self, utterance: object) -> bool:
        return utterance in self._features

    def read(self, utterance: str, frames: int | None = None) -> Matrix:
        """Normalised features with deltas, [frames, (1 + order) * bins]."""
        del frames
        order, window = self.deltas
        return add_deltas(self.static(utterance), order=order, window=window)

    def static(self, utterance: str) -> Matrix:
        """Normalised features, [frames, bins]."""
        features = self._features[utterance].astype(np.float32, copy=False)
        bins = self._config.logmel.bins
        if features.shape[1] != bins:
            raise UserError(
                f"{features.shape[1]} features a frame, and features.logmel.bins is {bins}",
                where=f"{self._features.path}, utterance {utterance}",
                fix="Deltas are added on reading: store the static features alone",
            )
        return self._normalised(features, utterance)

    def _normalised(self, features: Matrix, utterance: str) -> Matrix:
        if self._config.normalise == "none":
            return features
        speaker = self._speaker_of[utterance]
        if self._last[0] != speaker:
            if speaker not in self._statistics:
                raise UserError(
                    f"no CMVN statistics for speaker {speaker}", where=f"utterance {utterance}"
                )
            self._last = (speaker, self._statistics[speaker])
        variances = self._config.normalise == "speaker-mean-variance"
        where = f"utterance {utterance}"
        return cmvn.apply(features, self._last[1], variances=variances, where=where)
