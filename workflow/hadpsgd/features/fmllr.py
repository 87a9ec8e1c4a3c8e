"""Application of FMLLR transforms, ours or Kaldi's `trans.*` (Kaldi's transform-feats)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.errors import UserError
from hadpsgd.features.frontend import Inputs
from hadpsgd.features.store import store
from hadpsgd.kaldi_io import Scp, iterate
from hadpsgd.parallel import map_in_order
from hadpsgd.progress import tracked

Matrix = NDArray[np.float32]

_PIECE = 32


def read_transforms(*places: Path, allow_pipes: bool = False) -> Mapping[str, Matrix]:
    """Speaker (or utterance) → transform [dim, dim + 1].

    Each place is a folder with trans.1, trans.2, ..., an archive, or an scp (a single one is not
    held in memory).

    Raises:
        UserError: no transforms there, broken ones, or a speaker that is there twice.
    """
    if len(places) == 1 and places[0].suffix == ".scp":
        return Scp(places[0], allow_pipes=allow_pipes)
    transforms: dict[str, Matrix] = {}
    for place in places:
        files = sorted(place.glob("trans.*")) if place.is_dir() else [place]
        before = len(transforms)
        for path in files:
            for speaker, matrix in _stored(path, allow_pipes):
                if speaker in transforms:
                    raise UserError(f"speaker {speaker} is there twice", where=path)
                transforms[speaker] = matrix.astype(np.float32, copy=False)
        if len(transforms) == before:
            raise UserError("no transforms (trans.1, trans.2, ...)", where=place)
    return transforms


def _stored(path: Path, allow_pipes: bool) -> Iterable[tuple[str, Matrix]]:
    if path.suffix == ".scp":
        return Scp(path, allow_pipes=allow_pipes).items()
    return iterate(path, allow_pipes=allow_pipes)


def transform(features: Matrix, matrix: Matrix, where: object = None) -> Matrix:
    """[frames, dim] times the linear part [dim, dim], plus the last column.

    Raises:
        UserError: they do not fit.
    """
    dim = features.shape[1]
    if matrix.shape != (dim, dim + 1):
        rows, columns = matrix.shape
        raise UserError(
            f"features of {dim} dimensions and a transform of {rows} x {columns}", where=where
        )
    return features @ matrix[:, :dim].T + matrix[:, dim]


class Adapted:
    """Utterances with their speaker's transform applied."""

    def __init__(self, inputs: Inputs, transforms: Mapping[str, Matrix]) -> None:
        """Transforms go by speaker; where a speaker has none, by utterance."""
        self.inputs, self.transforms = inputs, transforms

    def __getitem__(self, utterance: str) -> Matrix:
        """float32 [frames, dim].

        Raises:
            UserError: no transform, or one that does not fit; names speaker and utterance.
        """
        speaker = self.inputs.data.utterances[utterance].speaker
        key = speaker if speaker in self.transforms else utterance
        where = f"speaker {speaker}, utterance {utterance}"
        if key not in self.transforms:
            raise UserError("no FMLLR transform", where=where, fix="Estimate it, or drop the data")
        return transform(self.inputs[utterance], self.transforms[key], where)

    def piece(self, utterances: list[str]) -> list[tuple[str, Matrix]]:
        """Some utterances."""
        return [(utterance, self[utterance]) for utterance in utterances]


def _worker(
    inputs: Inputs, transforms: Mapping[str, Matrix]
) -> Callable[[list[str]], list[tuple[str, Matrix]]]:
    return Adapted(inputs, transforms).piece


def apply(inputs: Inputs, transforms: Mapping[str, Matrix], out: Path, jobs: int) -> int:
    """Write adapted features of a data set: feats.{ark,scp}, utt2num_frames; returns how many.

    Raises:
        UserError: a speaker has no transform, or something does not fit.
    """
    names = inputs.utterances
    pieces = (names[start : start + _PIECE] for start in range(0, len(names), _PIECE))
    found = map_in_order(partial(_worker, inputs, transforms), pieces, jobs)
    done = tracked(found, names, what="fmllr", unit="utterances", weight=len)
    return store((item for piece in done for item in piece), out, "fmllr")
