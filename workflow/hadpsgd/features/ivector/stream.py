"""The ivector stream of the model's input: our own i-vectors, or Kaldi's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.config.features import Features
from hadpsgd.corpus.names import original
from hadpsgd.errors import UserError
from hadpsgd.features.ivector.extract import NAMES, PERIOD
from hadpsgd.kaldi_io import Kind, Scp

Matrix = NDArray[np.float32]


class IvectorStream:
    """Repeats i-vectors over frames: a speaker's, an utterance's, or those of every period.

    All are multiplied by `features.ivector_scale`.
    """

    framewise = False

    def __init__(self, folder: Path, config: Features, speaker_of: Mapping[str, str]) -> None:
        """`folder` has one of ivectors_spk.scp, ivectors_utt.scp, ivector_online.scp.

        Raises:
            UserError: none of them, or more than one; ivector_period is missing or no number.
        """
        self._scale = np.float32(config.ivector_scale)
        found = [k for k, name in NAMES.items() if (folder / f"{name}.scp").is_file()]
        if len(found) != 1:
            raise UserError(
                f"{len(found)} of " + ", ".join(f"{name}.scp" for name in NAMES.values()),
                where=folder,
                fix="`hadpsgd ivector-extract` makes one, `hadpsgd import-ivectors` takes Kaldi's",
            )
        kind = found[0]
        stored: Kind = "matrix" if kind == "online" else "vector"
        self._vectors = Scp(folder / f"{NAMES[kind]}.scp", stored)
        self._period = _read_period(folder / PERIOD) if kind == "online" else 0
        self._speaker_of = speaker_of if kind == "speaker" else None

    def _key(self, utterance: str) -> str:
        key = utterance if self._speaker_of is None else self._speaker_of.get(utterance, "")
        return key if key in self._vectors else original(key)

    def __contains__(self, utterance: object) -> bool:
        return isinstance(utterance, str) and self._key(utterance) in self._vectors

    def read(self, utterance: str, frames: int | None = None) -> Matrix:
        """float32 [frames, dim].

        Raises:
            UserError: online vectors of another length than the utterance.
        """
        if frames is None:
            raise ValueError("i-vectors follow the frames of another stream")
        vectors, of_frames = self._found(utterance, frames)
        found = vectors[of_frames]
        return found if self.per_frame else np.broadcast_to(found, (frames, found.shape[1]))

    @property
    def per_frame(self) -> bool:
        """Whether frames of an utterance have different vectors."""
        return bool(self._period)

    def vectors(self) -> Iterator[tuple[str, Matrix]]:
        """(key, vectors [n, dim]) of all that is stored."""
        for key in self._vectors:
            yield key, self._scaled(key)

    def places(self, utterance: str, frames: int) -> tuple[str, NDArray[np.int64]]:
        """An utterance's key in `vectors`, and which vector of the key each frame has.

        [frames], or [1] where all have the same.

        Raises:
            UserError: as `read`.
        """
        return self._key(utterance), self._found(utterance, frames)[1]

    def _scaled(self, key: str) -> Matrix:
        return np.atleast_2d(self._vectors[key].astype(np.float32) * self._scale)

    def _found(self, utterance: str, frames: int) -> tuple[Matrix, NDArray[np.int64]]:
        """Vectors [n, dim], and which of them each frame has, [frames] or [1]."""
        vectors = self._scaled(self._key(utterance))
        if not self._period:
            return vectors, np.zeros(1, np.int64)
        expected = -(-frames // self._period)
        if abs(len(vectors) - expected) > 1 or not len(vectors):
            raise UserError(
                f"{len(vectors)} i-vectors with a period of {self._period} for {frames} frames",
                where=f"utterance {utterance}",
                fix="Use i-vectors of the same features",
            )
        return vectors, np.minimum(np.arange(frames) // self._period, len(vectors) - 1)


def _read_period(path: Path) -> int:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise UserError("no such file", where=path, fix="Write the i-vectors' period") from None
    if not text.isdigit() or not int(text):
        raise UserError(f"'{text}' is not a number of frames", where=path)
    return int(text)
