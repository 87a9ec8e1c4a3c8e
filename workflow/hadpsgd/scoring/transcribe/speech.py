"""Where there is speech, by energy: long recordings are cut at silences."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Levels = NDArray[np.float32]
"""Decibels below full scale of every frame of 10 ms; _NOTHING for digital silence."""

FRAME = 0.01  # seconds
NOTHING = -100.0
"""Decibels of digital silence."""

_SMOOTH = 10  # frames over which levels are averaged
_FLOOR = 10  # percentile of the levels that is taken for the background
_QUIET = NOTHING + 10.0  # levels below are no background but digital silence
_RANGE = 8.0  # speech is at least so much louder than the background, in decibels
_SHARE, _LEAST, _MOST = 0.3, 3.0, 12.0  # of that range, the threshold above the background
_GAP, _SHORT, _PAD = 50, 10, 25  # frames: pauses inside of speech, clicks, and what is kept around
_LONGEST, _EARLIEST = 2000, 800  # frames of a segment, and from which on a long one is cut


def speech(levels: Levels) -> list[tuple[int, int]]:
    """Segments with speech, first frame and the one after the last, in order and apart."""
    smooth = _smoothed(levels)
    heard = smooth[smooth > _QUIET]
    if not len(heard):
        return []
    floor, peak = float(np.percentile(heard, _FLOOR)), float(heard.max())
    if peak - floor < _RANGE:
        return []
    threshold = floor + min(max(_SHARE * (peak - floor), _LEAST), _MOST)
    runs = [(a, b) for a, b in _joined(_runs(smooth > threshold)) if b - a >= _SHORT]
    return [part for begin, end in _padded(runs, len(levels)) for part in _cut(smooth, begin, end)]


def _smoothed(levels: Levels) -> NDArray[np.float64]:
    """Mean level around every frame."""
    if not len(levels):
        return np.zeros(0)
    before = _SMOOTH // 2
    padded = np.pad(levels.astype(np.float64), (before, _SMOOTH - before - 1), mode="edge")
    sums = np.concatenate([[0.0], np.cumsum(padded)])
    return (sums[_SMOOTH:] - sums[:-_SMOOTH]) / _SMOOTH


def _runs(active: NDArray[np.bool_]) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(active, prepend=False, append=False))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _joined(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Runs with no more than a short pause between them are one."""
    joined: list[tuple[int, int]] = []
    for begin, end in runs:
        if joined and begin - joined[-1][1] <= _GAP:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((begin, end))
    return joined


def _padded(runs: list[tuple[int, int]], frames: int) -> Iterator[tuple[int, int]]:
    """Runs with some frames around them, at most to the middle of the pause between two."""
    for number, (begin, end) in enumerate(runs):
        low = (runs[number - 1][1] + begin) // 2 if number else 0
        high = (end + runs[number + 1][0]) // 2 if number + 1 < len(runs) else frames
        yield max(low, begin - _PAD), min(high, end + _PAD)


def _cut(smooth: NDArray[np.float64], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """A long segment in parts, cut where it is quietest."""
    while end - begin > _LONGEST:
        low, high = begin + _EARLIEST, min(begin + _LONGEST, end - _EARLIEST)
        place = low + int(smooth[low:high].argmin())
        yield begin, place
        begin = place
    yield begin, end
