"""How an example lies on disk, and how its frames of the input are made of it.

A row is one example: of every stream what cannot be computed again when it is read, then its
pdf-ids. Deltas are added at reading, so a row holds the static frames and those beside them that
the filters reach; i-vectors are numbers of rows of one table. With the papers' 260 inputs and
float16 that are 4.2 kB of 21 frames, in 8 bits 2.1 kB, where the inputs themselves are 21.9 kB in
float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hadpsgd.features.deltas import delta_filters

INT8 = "int8"
DTYPES = ("float32", "float16", INT8)
LABELS = "labels"
PADDING = -1
"""Label of a frame that is not there."""
_BLOCK = 64  # examples computed at once: their frames stay in a core's cache

Scales = NDArray[np.float32]
"""Offsets and steps of static features in 8 bits, [..., 2, features] (`hadpsgd.egs.precision`)."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One stream of the input, as examples hold it."""

    stream: str
    dim: int
    """Values of a frame, without deltas."""
    order: int = 0
    """Deltas appended at reading."""
    window: int = 0
    """Frames to each side in a delta filter."""
    table: bool = False
    """Rows hold numbers of vectors of the table `ivectors.npy`, not values."""
    framewise: bool = True
    """A value, or a vector's number, for every frame; else one for an utterance."""

    @property
    def reach(self) -> int:
        """Frames beyond both ends of an example that its deltas need."""
        return self.order * self.window

    @property
    def width(self) -> int:
        """Values of a frame in the input."""
        return self.dim * (self.order + 1)


@dataclass(frozen=True)
class Layout:
    """The rows of a set of examples."""

    frames: int
    """Of an example."""
    parts: tuple[Part, ...]
    """In the order of the input."""
    dtype: str
    """Of stored values, one of DTYPES."""

    @classmethod
    def plain(
        cls, *, frames: int, dim: int, dtype: str = "float32", stream: str = "logmel"
    ) -> Layout:
        """Inputs as they are, of one stream."""
        return cls(frames, (Part(stream=stream, dim=dim),), dtype)

    @classmethod
    def of(cls, description: Mapping[str, Any]) -> Layout:
        """What `description` gave.

        Raises:
            KeyError, TypeError, ValueError: it gave something else.
        """
        if description["dtype"] not in DTYPES:
            raise ValueError(f"dtype {description['dtype']}")
        parts = tuple(Part(**part) for part in description["parts"])
        return cls(description["frames"], parts, description["dtype"])

    def description(self) -> dict[str, Any]:
        """For meta.json."""
        return asdict(self)

    @property
    def dims(self) -> dict[str, int]:
        """Streams of the input and their values a frame."""
        return {part.stream: part.width for part in self.parts}

    @property
    def dim(self) -> int:
        """Values of a frame of the input."""
        return sum(self.dims.values())

    @cached_property
    def columns(self) -> dict[str, slice]:
        """Where the static features of streams are among all of them, in the order of the input."""
        parts = [part for part in self.parts if not part.table]
        ends = np.cumsum([0, *(part.dim for part in parts)]).tolist()
        return {p.stream: slice(*ends[n : n + 2]) for n, p in enumerate(parts)}

    @property
    def features(self) -> int:
        """Static features of a frame."""
        return sum(part.dim for part in self.parts if not part.table)

    @cached_property
    def exact(self) -> Layout:
        """With values in float32."""
        return replace(self, dtype="float32")

    @property
    def table_dtype(self) -> np.dtype:
        """Of the i-vectors: in 8 bits there are few of them to save on."""
        return np.dtype("float16" if self.dtype == INT8 else self.dtype)

    @cached_property
    def row(self) -> np.dtype:
        """An example on disk."""
        fields: list[tuple[Any, ...]] = []
        for part in self.parts:
            if part.table:
                fields.append((part.stream, "<i4", (self.frames if part.framewise else 1,)))
            else:
                kind = np.dtype(self.dtype).newbyteorder("<")
                fields.append((part.stream, kind, (self.frames + 2 * part.reach, part.dim)))
        return np.dtype([*fields, (LABELS, "<i4", (self.frames,))])

    def rows(
        self,
        streams: Mapping[str, NDArray[Any]],
        labels: NDArray[np.int32],
        starts: Sequence[int] | NDArray[np.integer],
    ) -> NDArray[np.void]:
        """Examples of an utterance that begin at the frames `starts`, in float32 or float16.

        Args:
            streams: static values [frames, dim], or numbers of vectors [frames] or [1].
            labels: pdf-ids [frames]; an example that ends after them is padded.
            starts: first frames of the examples [n].
        """
        firsts = np.asarray(starts, np.int64)[:, None]
        rows = np.zeros(len(firsts), self.row)
        for part in self.parts:
            values = streams[part.stream]
            if not part.framewise:
                rows[part.stream] = values[0]
                continue
            places = firsts + np.arange(-part.reach, self.frames + part.reach)
            # the first and last frame are repeated beyond the ends, as for whole utterances
            rows[part.stream] = values[np.clip(places, 0, len(values) - 1)]
        places = firsts + np.arange(self.frames)
        last = len(labels) - 1
        rows[LABELS] = np.where(places <= last, labels[np.minimum(places, last)], PADDING)
        return rows

    def inputs(
        self,
        rows: NDArray[np.void],
        table: NDArray[np.floating] | None,
        scales: Scales | None = None,
        *,
        out: NDArray[np.float32],
    ) -> None:
        """Put together the input that rows [n] stand for; 0 where it is padding.

        Args:
            rows: as `rows` made them, and `precision.pack` stored them.
            table: i-vectors [vectors, dim], where a part has numbers of them.
            scales: of each row, [n, 2, features], where values are in 8 bits.
            out: the input [n, frames, dim], filled.
        """
        for first in range(0, len(rows), _BLOCK):
            block = slice(first, first + _BLOCK)
            of_block = None if scales is None else scales[block]
            self._fill(out[block], rows[block], table, of_block)

    def static(
        self, rows: NDArray[np.void], stream: str, scales: Scales | None
    ) -> NDArray[np.float32]:
        """Values of a stream without deltas, [n, frames with those beside them, dim].

        Args:
            rows: [n].
            stream: its name.
            scales: [n or 1, 2, features], where values are in 8 bits.
        """
        values = _floats(rows[stream])
        if self.dtype == INT8:
            assert scales is not None
            of_stream = scales[:, :, self.columns[stream]]
            values *= of_stream[:, 1, None]
            values += of_stream[:, 0, None]
        return values

    def _fill(
        self,
        out: NDArray[np.float32],
        rows: NDArray[np.void],
        table: NDArray[np.floating] | None,
        scales: Scales | None,
    ) -> None:
        first = 0
        for part in self.parts:
            target = out[:, :, first : first + part.width]
            first += part.width
            if part.table:
                assert table is not None
                target[...] = _floats(table[rows[part.stream]])
                continue
            static = self.static(rows, part.stream, scales)
            if not part.order:
                target[...] = static
                continue
            target[:, :, : part.dim] = static[:, part.reach : part.reach + self.frames]
            deltas = np.matmul(self.filters[part.stream], static)
            for order in range(1, part.order + 1):
                columns = slice(order * part.dim, (order + 1) * part.dim)
                target[:, :, columns] = deltas[:, (order - 1) * self.frames : order * self.frames]
        padded = rows[LABELS] == PADDING
        if padded.any():
            out[padded] = 0.0

    @cached_property
    def filters(self) -> dict[str, NDArray[np.float32]]:
        """Of every stream with deltas: [order * frames, frames + 2 * reach]."""
        return {p.stream: _filter_matrix(p, self.frames) for p in self.parts if p.order}


def _floats(values: NDArray[Any]) -> NDArray[np.float32]:
    """Values in float32; of others by torch, which is 20 times faster than NumPy at float16."""
    if values.dtype == np.float32:
        return values
    import torch  # writing examples does without it

    return torch.from_numpy(values).float().numpy()


def _filter_matrix(part: Part, frames: int) -> NDArray[np.float32]:
    """Delta filters of all orders but the identity, as one matrix over an example's frames."""
    matrix = np.zeros((part.order, frames, frames + 2 * part.reach), np.float32)
    filters = delta_filters(order=part.order, window=part.window)
    for order, taps in enumerate(filters[1:], 1):
        first = part.reach - order * part.window
        for frame in range(frames):
            matrix[order - 1, frame, first + frame : first + frame + len(taps)] = taps
    return matrix.reshape(-1, frames + 2 * part.reach)
