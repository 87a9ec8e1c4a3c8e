"""Static features as they are stored: in float32, rounded to float16, or in 8 bits.

In 8 bits a value is offset + step * code, its code a whole number from -127 to 127. Each feature
has an offset, the middle of its range, and a step, a 254th of it, for all frames of a shard: a
linear quantisation as Kaldi's CompressedMatrix has (matrix/compressed-matrix.h), there for the
range of one matrix. What is read differs by half a step at most. What rounding does is measured on
every value when examples are made.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hadpsgd.egs.layout import INT8, Layout, Scales
from hadpsgd.errors import UserError

_CODES = 127


@dataclass(frozen=True)
class Errors:
    """What rounding did to the features of a stream, beside how far they spread."""

    count: int
    """Frames."""
    mean: NDArray[np.float64]
    """Of each feature, [dim]."""
    squares: NDArray[np.float64]
    """Sum of squared distances from the mean, [dim]."""
    error_squares: NDArray[np.float64]
    """Sum of squared errors, [dim]."""
    largest: NDArray[np.float64]
    """Absolute error at most, [dim]."""

    @classmethod
    def of(cls, values: NDArray[np.float32], stored: NDArray[np.float32]) -> Errors:
        """Values and what is read of them, both [..., dim]."""
        exact = values.reshape(-1, values.shape[-1]).astype(np.float64)
        error = np.abs(stored.reshape(exact.shape) - exact)
        mean = exact.mean(0)
        return cls(len(exact), mean, ((exact - mean) ** 2).sum(0), (error**2).sum(0), error.max(0))

    def joined(self, other: Errors) -> Errors:
        """Those of both (Chan et al., "Updating formulae and a pairwise algorithm", 1979)."""
        count = self.count + other.count
        apart = other.mean - self.mean
        return Errors(
            count,
            self.mean + apart * (other.count / count),
            self.squares + other.squares + apart**2 * (self.count * other.count / count),
            self.error_squares + other.error_squares,
            np.maximum(self.largest, other.largest),
        )

    def in_deviations(self) -> dict[str, list[float]]:
        """Largest and root mean square error of each feature, in its standard deviations."""
        spread = np.sqrt(self.squares / self.count)
        spread[spread == 0.0] = np.inf  # a feature that never changes is stored as it is
        rms = np.sqrt(self.error_squares / self.count)
        return {
            name: [float(f"{value:.4g}") for value in values / spread]
            for name, values in (("max", self.largest), ("rms", rms))
        }

    def content(self) -> dict[str, Any]:
        """For JSON; `Errors.read` takes it back."""
        return {n: v.tolist() if isinstance(v, np.ndarray) else v for n, v in vars(self).items()}

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Errors:
        """What `content` gave."""
        arrays = {n: np.array(v, np.float64) for n, v in content.items() if n != "count"}
        return cls(count=int(content["count"]), **arrays)


OfStreams = dict[str, Errors]


def joined(of: OfStreams, more: OfStreams) -> OfStreams:
    """Errors of both, by stream."""
    return of | {name: of[name].joined(e) if name in of else e for name, e in more.items()}


@dataclass(frozen=True)
class Packed:
    """Rows of a shard as they are stored."""

    rows: NDArray[np.void]
    scales: Scales | None
    """Offset and step of every feature, [2, features]; None where they are not in 8 bits."""
    errors: OfStreams
    """By stream; none where values are stored as they are."""


def pack(layout: Layout, parts: deque[NDArray[np.void]]) -> Packed:
    """Rows in float32, as `layout.exact` has them, as they are stored.

    `parts` is emptied, so that no more than these rows and those are held.
    """
    scales = _scales(layout, parts) if layout.dtype == INT8 else None
    rows = np.empty(sum(map(len, parts)), layout.row)
    errors: OfStreams = {}
    end = 0
    while parts:
        part = parts.popleft()
        if not len(part):
            continue
        stored = rows[end : end + len(part)]
        end += len(part)
        for name in rows.dtype.names or ():
            if scales is not None and name in layout.columns:
                stored[name] = _codes(part[name], *scales[:, layout.columns[name]])
            else:
                stored[name] = part[name]
        if layout.dtype != layout.exact.dtype:
            errors = joined(errors, _errors(layout, part, stored, scales))
    return Packed(rows, scales, errors)


def check_values(streams: Mapping[str, NDArray[np.float32]], *, dtype: str, where: str) -> None:
    """Refuse static features [frames, dim] that could not be stored.

    Raises:
        UserError: a value is NaN or infinite, or too large for float16.
    """
    for name, values in streams.items():
        largest = float(np.abs(values).max(initial=0.0))
        if not np.isfinite(largest):
            what, fix = "a value that is not a finite number", "Make its features again"
            raise UserError(f"{name} has {what}", where=where, fix=fix)
        if dtype == "float16" and largest > float(np.finfo(np.float16).max):
            what = f"a value of size {largest:g}, which float16 does not hold"
            raise UserError(f"{name} has {what}", where=where, fix="Set egs.dtype to int8")


def report(errors: OfStreams, dtype: str) -> dict[str, dict[str, list[float]]]:
    """Errors in standard deviations of each feature, by stream, for meta.json; said on stderr."""
    found = {name: each.in_deviations() for name, each in errors.items()}
    for name, of in found.items():
        rms = float(np.sqrt(np.mean(np.square(of["rms"]))))
        print(
            f"{name} in {dtype}: error at most {max(of['max']):.2g} standard deviations of a"
            f" feature, RMS {rms:.2g}",
            file=sys.stderr,
        )
    return found


def _scales(layout: Layout, parts: Iterable[NDArray[np.void]]) -> Scales:
    """Offsets and steps, [2, features], that reach over the range of every feature."""
    low = np.full(layout.features, np.inf)
    high = -low
    for part in parts:
        for name, columns in layout.columns.items():
            values = part[name]
            low[columns] = np.minimum(low[columns], values.min((0, 1), initial=np.inf))
            high[columns] = np.maximum(high[columns], values.max((0, 1), initial=-np.inf))
    if not np.isfinite(low).all():  # no rows at all
        low = high = np.zeros(layout.features)
    offsets = ((low + high) / 2).astype(np.float32)
    reach = np.maximum(high - offsets, offsets - low)  # the offset is rounded
    return np.stack([offsets, (reach / _CODES).astype(np.float32)])


def _codes(
    values: NDArray[np.float32], offsets: NDArray[np.float32], steps: NDArray[np.float32]
) -> NDArray[np.int8]:
    """Codes [..., dim] of values; a feature that never changes has 0."""
    places = (values - offsets.astype(np.float64)) / np.where(steps > 0, steps, 1).astype(float)
    return np.clip(np.rint(places), -_CODES, _CODES).astype(np.int8)


def _errors(
    layout: Layout,
    part: NDArray[np.void],
    stored: NDArray[np.void],
    scales: Scales | None,
) -> OfStreams:
    of_rows = None if scales is None else scales[None]
    return {
        name: Errors.of(part[name], layout.static(stored, name, of_rows)) for name in layout.columns
    }
