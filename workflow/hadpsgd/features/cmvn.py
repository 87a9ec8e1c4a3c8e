"""Cepstral mean and variance statistics in Kaldi's form (compute-cmvn-stats, apply-cmvn).

Statistics are float64 [2, dim + 1]: sums and the count of frames, then sums of squares and 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.errors import UserError

Statistics = NDArray[np.float64]
Matrix = NDArray[np.float32]

_VARIANCE_FLOOR = 1e-20  # Kaldi's ApplyCmvn


def statistics(features: Matrix) -> Statistics:
    """Statistics of one utterance."""
    frames, dim = features.shape
    stats = np.zeros((2, dim + 1))
    double = features.astype(np.float64)
    stats[0, :dim] = double.sum(axis=0)
    stats[0, dim] = frames
    stats[1, :dim] = np.square(double, out=double).sum(axis=0)
    return stats


class SpeakerStatistics:
    """Sums the statistics of every speaker's utterances; holds one small matrix a speaker."""

    def __init__(self, speaker_of: Mapping[str, str]) -> None:
        """`speaker_of` is utt2spk."""
        self._speaker_of = speaker_of
        self._sums: dict[str, Statistics] = {}

    def add(self, utterance: str, features: Matrix) -> None:
        """Count an utterance for its speaker.

        Raises:
            UserError: the utterance has no speaker.
        """
        if utterance not in self._speaker_of:
            raise UserError(f"utterance {utterance} has no speaker", fix="Add it to utt2spk")
        speaker = self._speaker_of[utterance]
        stats = statistics(features)
        self._sums[speaker] = self._sums[speaker] + stats if speaker in self._sums else stats

    def items(self) -> Iterable[tuple[str, Statistics]]:
        """(speaker, statistics), sorted by speaker."""
        return sorted(self._sums.items())


def apply(features: Matrix, stats: Statistics, *, means: bool = True, variances: bool = False,
          where: object = None) -> Matrix:  # fmt: skip
    """Normalise [frames, dim] to mean 0 (and variance 1) by a speaker's statistics.

    Raises:
        UserError: statistics of another dimension, or of no frames.
    """
    dim = features.shape[1]
    if stats.shape != (2, dim + 1):
        raise UserError(
            f"CMVN statistics of {stats.shape[1] - 1} dimensions for features of {dim}",
            where=where,
            fix="Make cmvn.scp again from these features",
        )
    count = stats[0, dim]
    if count < 1:
        raise UserError("CMVN statistics of no frames", where=where)
    mean = stats[0, :dim] / count
    if not variances:
        return features - mean.astype(np.float32) if means else features
    variance = np.maximum(stats[1, :dim] / count - np.square(mean), _VARIANCE_FLOOR)
    scale = 1 / np.sqrt(variance)
    offset = -mean * scale if means else 0.0 * mean
    return features * scale.astype(np.float32) + offset.astype(np.float32)


def read_cmvn_opts(path: Path) -> tuple[bool, bool]:
    """(--norm-means, --norm-vars) out of Kaldi's cmvn_opts; true and false if not given.

    Raises:
        UserError: no such file, or an option that apply-cmvn does not have.
    """
    values = {"--norm-means": "true", "--norm-vars": "false"}
    try:
        words = path.read_text(encoding="utf-8").split()
    except FileNotFoundError:
        raise UserError("no such file", where=path) from None
    for word in words:
        name, _, value = word.partition("=")
        if name not in values or value not in ("true", "false"):
            raise UserError(f"'{word}' is not an option of apply-cmvn", where=path)
        values[name] = value
    return values["--norm-means"] == "true", values["--norm-vars"] == "true"
