"""Chunks of a data set, each made into a shard by whichever process comes first.

A chunk of training speech is a random choice of utterances, and its examples lie in random order:
neighbours on disk have nothing to do with each other, so they may be read together. Held-out sets
keep their order. What a chunk becomes depends on nothing but the input; so any number of
processes gives the same bytes, and chunks that are finished stay after a kill.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hadpsgd.config import Config
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.egs.copies import Copies
from hadpsgd.egs.counts import Counts
from hadpsgd.egs.layout import INT8, Layout, Scales
from hadpsgd.egs.precision import Errors, OfStreams, check_values, pack
from hadpsgd.egs.rows import check_array
from hadpsgd.egs.shards import write_shard
from hadpsgd.egs.shuffle import Permutation
from hadpsgd.egs.spool import Spool
from hadpsgd.egs.tempo import Tempo
from hadpsgd.egs.vectors import Firsts, numbers
from hadpsgd.errors import UserError
from hadpsgd.features.fusion import Fusion, Static
from hadpsgd.files import atomic_file, write_text

_UTTERANCES, _ROWS = 0x0E65, 0x0E66
"""Tell the order of utterances over chunks from that of rows in a chunk."""


@dataclass(frozen=True, kw_only=True)
class Chunks:
    """Which utterances are in which chunk."""

    utterances: int
    number: int
    """Of chunks."""
    ordered: bool
    """Whether chunks hold neighbours, in their order (held-out sets)."""

    def members(self, chunk: int) -> NDArray[np.int64]:
        """Numbers of the utterances of a chunk, rising: they are read forwards."""
        first, last = (self.utterances * c // self.number for c in (chunk, chunk + 1))
        places = np.arange(first, last)
        return (
            places if self.ordered else np.sort(Permutation(self.utterances, _UTTERANCES)(places))
        )

    def order(self, chunk: int, *, rows: int) -> NDArray[np.int64] | None:
        """The order of a chunk's rows; None as they are."""
        return None if self.ordered else Permutation(rows, _ROWS, chunk)(np.arange(rows))


@dataclass(frozen=True)
class Made:
    """A finished chunk."""

    shard: dict[str, Any]
    """Its description in meta.json."""
    counts: Counts
    pdf_counts: NDArray[np.int64]
    """Frames of the alignment with each pdf-id, dropped ones too; without copies."""
    scales: Scales | None
    """Of its 8-bit values, [2, features]."""
    errors: OfStreams
    """What rounding did to its values."""

    def save(self, path: Path) -> None:
        """Say that it is finished."""
        content = {
            "shard": self.shard,
            "counts": asdict(self.counts),
            "pdf_counts": self.pdf_counts.tolist(),
            "scales": None if self.scales is None else self.scales.tolist(),
            "errors": {name: each.content() for name, each in self.errors.items()},
        }
        write_text(path, json.dumps(content))

    @classmethod
    def load(cls, path: Path, layout: Layout) -> Made | None:
        """What `save` wrote; None where it is not there, or it or its shard is damaged."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            shard, counts = content["shard"], Counts(**content["counts"])
            check_array(path.with_name(shard["examples"]), (shard["subsequences"],), layout.row)
            scales = None
            if layout.dtype == INT8:
                scales = np.array(content["scales"], np.float32).reshape(2, layout.features)
            errors = {name: Errors.read(each) for name, each in content["errors"].items()}
            return cls(shard, counts, np.array(content["pdf_counts"], np.int64), scales, errors)
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, UserError):
            return None


@dataclass(frozen=True, kw_only=True)
class Maker:
    """Makes, in the process that uses it, what writes a chunk."""

    config: Config
    data: DataDir
    streams: Path
    copies: DataDir | None
    held_out: bool
    pad: bool
    """Whether the last example of an utterance is filled up; else what is left is dropped."""
    spool: Spool
    chunks: Chunks
    layout: Layout
    firsts: Firsts
    pdfs: int
    folder: Path

    def done(self, chunk: int) -> Path:
        """The file that says that a chunk is finished."""
        return self.folder / f"chunk.{chunk:04}.json"

    def __call__(self) -> Callable[[int], Made]:
        """Open the features; the function makes a chunk, unless it is there."""
        fusion = Fusion(self.config, self.streams, self.data)
        copies = None if self.copies is None else Copies(self.config, self.streams, self.copies)
        dtype = self.layout.dtype

        def make(chunk: int) -> Made:
            if finished := Made.load(self.done(chunk), self.layout):
                return finished
            counts, pdf_counts = Counts(), np.zeros(self.pdfs, np.int64)
            parts: deque[NDArray[np.void]] = deque()
            for utterance, pdf_ids in self.spool.read(self.chunks.members(chunk)):
                static, labels = matched(fusion.static(utterance), pdf_ids, utterance)
                check_values(static.values, dtype=dtype, where=f"utterance {utterance}")
                pdf_counts += np.bincount(labels, minlength=self.pdfs)
                counts.utterances += 1
                parts.extend(self._rows(static, labels, counts, copied=False))
                if copies is not None and not self.held_out:
                    for copy, said in copies(utterance, labels):
                        check_values(copy.values, dtype=dtype, where=f"a copy of {utterance}")
                        parts.extend(self._rows(copy, said, counts, copied=True))
            packed = pack(self.layout, parts)
            shard = self._write(chunk, packed.rows)
            made = Made(shard, counts, pdf_counts, packed.scales, packed.errors)
            made.save(self.done(chunk))
            return made

        return make

    def _rows(
        self, static: Static, labels: NDArray[np.int32], counts: Counts, *, copied: bool
    ) -> Iterator[NDArray[np.void]]:
        """Examples of an utterance at all tempos, or of a copy."""
        settings = self.config.egs
        tempos = [1.0] if self.held_out or copied else settings.tempos
        numbered = {
            name: numbers(self.firsts, places, copied=copied)
            for name, places in static.vectors.items()
        }
        for tempo in tempos:
            at = Tempo(frames=len(labels), tempo=tempo)
            said = at.nearest(labels)
            streams: dict[str, NDArray[Any]] = {
                n: at.stretched(v) for n, v in static.values.items()
            }
            for name, which in numbered.items():
                streams[name] = at.nearest(which) if len(which) > 1 else which
            first = starts(len(said), frames=settings.frames, pad=self.pad, shift=settings.shift)
            counts.add(len(said), settings, number=len(first), padded=self.pad)
            yield self.layout.exact.rows(streams, said, first)

    def _write(self, chunk: int, rows: NDArray[np.void]) -> dict[str, Any]:
        path = self.folder / f"examples.{chunk:04}.npy"
        with atomic_file(path) as temporary:
            shard = write_shard(temporary, rows, self.chunks.order(chunk, rows=len(rows)))
        return {**shard, "examples": path.name}


def starts(length: int, *, frames: int, pad: bool, shift: int = 0) -> NDArray[np.int64]:
    """First frames of the subsequences of an utterance of `length` frames.

    Without a shift they do not overlap. What does not fill a subsequence is dropped; with `pad`
    the last subsequence is filled up, and nothing overlaps.
    """
    if pad:
        return np.arange(0, length, frames)
    return np.arange(0, length - frames + 1, shift or frames)


def matched(
    static: Static, labels: NDArray[np.int32], utterance: str
) -> tuple[Static, NDArray[np.int32]]:
    """Streams and labels of the same length: a difference of one frame is cut from the labels.

    Streams may keep a frame more, which the deltas of the last one see.

    Raises:
        UserError: they differ by more.
    """
    if abs(static.frames - len(labels)) > 1:
        raise UserError(
            f"{static.frames} frames of features and an alignment of {len(labels)}",
            where=f"utterance {utterance}",
            fix="Use alignments of the same audio with the same frame shift",
        )
    return static, labels[: static.frames]
