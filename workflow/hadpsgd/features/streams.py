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


class Stream(Protocol):
    """One part of the model's input."""

    framewise: bool
    """A row for every frame; other streams (i-vectors) follow the frames of these."""

    def __contains__(self, utterance: object) -> bool:
        """Whether there is something for the utterance."""

    def read(self, utterance: str, frames: int | None = None) -> Matrix:
        """float32 [frames, dim]; a stream that is not framewise needs to be told `frames`.

        Raises:
            UserError: what is stored is broken or does not fit; names the utterance.
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

    def __init__(self, folder: Path, config: Features, speaker_of: Mapping[str, str]) -> None:
        """`folder` has feats.scp; the other arguments are those of every stream."""
        del config, speaker_of
        self._features = opened(folder / "feats.scp", "features")

    def __contains__(self, utterance: object) -> bool:
        return utterance in self._features

    def read(self, utterance: str, frames: int | None = None) -> Matrix:
        """The stored matrix."""
        del frames
        return self._features[utterance].astype(np.float32, copy=False)


class LogmelStream:
    """Log mel energies: normalised by speaker, then deltas appended."""

    framewise = True

    def __init__(self, folder: Path, config: Features, speaker_of: Mapping[str, str]) -> None:
        """`folder` has feats.scp, and cmvn.scp unless `config.normalise` is none."""
        self._features = opened(folder / "feats.scp", "features")
        self._config = config
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
        features = self._features[utterance].astype(np.float32, copy=False)
        options = self._config.logmel
        if features.shape[1] != options.bins:
            raise UserError(
                f"{features.shape[1]} features a frame, and features.logmel.bins is {options.bins}",
                where=f"{self._features.path}, utterance {utterance}",
                fix="Deltas are added on reading: store the static features alone",
            )
        normal = self._normalised(features, utterance)
        return add_deltas(normal, order=options.delta_order, window=options.delta_window)

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
