"""The model's input: streams side by side, in the order of `features.input`.

Used by the examples and by decoding alike, so that both see the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.config import Config
from hadpsgd.config.features import Features
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.errors import UserError
from hadpsgd.features.ivector.stream import IvectorStream
from hadpsgd.features.streams import Archived, Framewise, LogmelStream
from hadpsgd.skipped import check_skipped

Matrix = NDArray[np.float32]


StreamMaker = Callable[[Path, Features, Mapping[str, str]], Framewise | IvectorStream]
"""Opens a stream: its folder, the features section, utt2spk."""

STREAMS: dict[str, StreamMaker] = {
    "logmel": LogmelStream,
    "fmllr": Archived,
    "ivector": IvectorStream,
}


@dataclass(frozen=True)
class Static:
    """An utterance's streams without what can be computed of them."""

    frames: int
    values: dict[str, Matrix]
    """Without deltas, [frames or one more, dim]."""
    vectors: dict[str, tuple[str, NDArray[np.int64]]]
    """Of streams of i-vectors: a key, and which of its vectors each frame has, [frames] or [1]."""


class Fusion:
    """Fused input of a data set: utterance → float32 [frames, dim]. Reads when it is asked."""

    def __init__(self, config: Config, folder: Path, data: DataDir) -> None:
        """Open the streams of a data set.

        Args:
            config: its `features` say which streams, and how each is normalised.
            folder: holds `<stream>/<set>/`, the set being the name of the data directory.
            data: the data set.

        Raises:
            UserError: a stream is missing, or too many utterances lack features.
        """
        speaker_of = {utterance.id: utterance.speaker for utterance in data}
        self.names = list(config.features.input)
        self._streams: dict[str, Framewise | IvectorStream] = {
            name: STREAMS[name](folder / name / data.path.name, config.features, speaker_of)
            for name in self.names
        }
        self.utterances = [u for u in speaker_of if all(u in s for s in self._streams.values())]
        """Utterances that every stream has, in the order of the data."""
        self.missing = sorted(speaker_of.keys() - set(self.utterances))
        """Utterances without features."""
        check_skipped(
            self.missing,
            total=len(data),
            limit=config.features.max_skipped.of(data.path.name),
            what="utterances have no features",
            where=data.path,
            fix="Run `hadpsgd features` or raise features.max_skipped",
        )
        self._dims: dict[str, int] | None = None

    @property
    def streams(self) -> dict[str, Framewise | IvectorStream]:
        """By name, in the order of the input."""
        return self._streams

    @property
    def dims(self) -> dict[str, int]:
        """Dimension of every stream, in the order of the input."""
        if self._dims is None:
            self[self.utterances[0]]
            assert self._dims is not None
        return self._dims

    @property
    def dim(self) -> int:
        """Dimension of the input."""
        return sum(self.dims.values())

    def __len__(self) -> int:
        return len(self.utterances)

    def __iter__(self) -> Iterator[tuple[str, Matrix]]:
        for utterance in self.utterances:
            yield utterance, self[utterance]

    def __getitem__(self, utterance: str) -> Matrix:
        """Fused features of an utterance, float32 [frames, dim].

        Raises:
            UserError: streams differ by more than one frame, or a dimension changed.
        """
        parts = {n: s.read(utterance) for n, s in self._streams.items() if s.framewise}
        frames = _agreed(parts, utterance)
        for name, stream in self._streams.items():
            if not stream.framewise:
                parts[name] = stream.read(utterance, frames)
        self._check_dims({name: parts[name].shape[1] for name in self.names}, utterance)
        return np.concatenate([parts[name][:frames] for name in self.names], axis=1)

    def static(self, utterance: str) -> Static:
        """What cannot be computed again when the input is put together.

        Raises:
            UserError: as for the features themselves.
        """
        values, vectors = {}, {}
        for name, stream in self._streams.items():
            if not isinstance(stream, IvectorStream):
                values[name] = stream.static(utterance)
        frames = _agreed(values, utterance)
        for name, stream in self._streams.items():
            if isinstance(stream, IvectorStream):
                vectors[name] = stream.places(utterance, frames)
        return Static(frames, values, vectors)

    def _check_dims(self, dims: dict[str, int], utterance: str) -> None:
        if self._dims is None:
            self._dims = dims
        for name, dim in dims.items():
            if dim != self._dims[name]:
                raise UserError(
                    f"{name} has {dim} features a frame, and {self._dims[name]} before",
                    where=f"utterance {utterance}",
                )


def _agreed(parts: Mapping[str, Matrix], utterance: str) -> int:
    """Frames that all streams [frames, dim] have.

    Raises:
        UserError: there is no stream, or they differ by more than one frame.
    """
    counts = {name: len(part) for name, part in parts.items()}
    if not counts:
        raise UserError("features.input needs a stream with a row for every frame (logmel, fmllr)")
    if max(counts.values()) > min(counts.values()) + 1:
        said = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise UserError(f"streams differ in frames: {said}", where=f"utterance {utterance}")
    return min(counts.values())
