"""FMLLR transforms of many speakers from a stream of sums; what to do with too little speech."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hadpsgd.gmm.diag_gmm import Array
from hadpsgd.gmm.fmllr import ITERATIONS, Sums, estimate, identity

MIN_COUNT = 500.0
"""Frames (weighted) that a transform of one's own takes: Kaldi's --fmllr-min-count."""
_BATCH = 16


class Part(NamedTuple):
    """Sums of some utterances of a speaker, and how many they are."""

    speaker: str
    utterances: int
    sums: Sums


@dataclass
class Adaptation:
    """Transforms of all speakers, float32 [dim, dim + 1], and how they came about.

    counts: frames of each speaker; gains: of its own transform, in nats a frame; few, singular:
    speakers with less than the minimum, or whose statistics have no solution, which got the
    transform of all speakers together instead; total: gain of that one.
    """

    transforms: dict[str, Array] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    gains: dict[str, float] = field(default_factory=dict)
    few: list[str] = field(default_factory=list)
    singular: list[str] = field(default_factory=list)
    total: float = 0.0

    @property
    def gain(self) -> float:
        """Nats a frame, over the speakers with a transform of their own."""
        frames = sum(self.counts[speaker] for speaker in self.gains)
        return sum(self.gains[name] * self.counts[name] for name in self.gains) / max(frames, 1.0)

    @property
    def summary(self) -> str:
        """One line on what was done."""
        frames = sum(self.counts.values())
        lines = [
            f"FMLLR: {len(self.transforms)} speakers, {frames:.0f} frames, gain {self.gain:.5f} "
            "a frame"
        ]
        for names, why in ((self.few, "too little speech"), (self.singular, "singular sums")):
            if names:
                shown = ", ".join(sorted(names)[:5]) + (" ..." if len(names) > 5 else "")
                lines.append(f"{len(names)} with {why} share one transform ({shown})")
        return "; ".join(lines)


def adapt(
    parts: Iterable[Part],
    utterances: Mapping[str, int],
    *,
    dim: int,
    min_count: float = MIN_COUNT,
    iterations: int = ITERATIONS,
) -> Adaptation:
    """Estimate every speaker's transform.

    A speaker is dealt with, and its sums are dropped, as soon as all its `utterances` are in:
    where data are sorted by speaker memory holds the sums of a few. Speakers with fewer frames
    than `min_count` get the transform of all speakers together; the identity where that has too
    little too. Speakers in `utterances` that never come get that one as well.
    """
    result, everything = Adaptation(), Sums.zeros(dim)
    left = dict(utterances)
    waiting: dict[str, Sums] = {}
    ready: dict[str, Sums] = {}
    for speaker, size, sums in parts:
        everything += sums
        if speaker in waiting:
            waiting[speaker] += sums
        else:
            waiting[speaker] = sums
        left[speaker] -= size
        if left[speaker] <= 0:
            ready[speaker] = waiting.pop(speaker)
        if len(ready) >= _BATCH:
            _settle(result, ready, min_count, iterations)
            ready = {}
    _settle(result, ready | waiting, min_count, iterations)
    for speaker in utterances:
        if speaker not in result.counts:
            result.counts[speaker] = 0.0
            result.few.append(speaker)
    _share(result, everything, min_count, iterations)
    return result


def _settle(result: Adaptation, ready: Mapping[str, Sums], least: float, iterations: int) -> None:
    result.counts |= {speaker: sums.count for speaker, sums in ready.items()}
    result.few += [speaker for speaker, sums in ready.items() if sums.count <= least]
    chosen = {speaker: sums for speaker, sums in ready.items() if sums.count > least}
    if not chosen:
        return
    transforms, gains = estimate(list(chosen.values()), iterations)
    for (speaker, sums), transform, gain in zip(chosen.items(), transforms, gains, strict=True):
        if gain > 0:
            result.transforms[speaker] = transform.astype(np.float32)
            result.gains[speaker] = float(gain) / sums.count
        else:
            result.singular.append(speaker)


def _share(result: Adaptation, everything: Sums, least: float, iterations: int) -> None:
    others = result.few + result.singular
    if not others:
        return
    common = identity(len(everything.linear))
    if everything.count > least:
        transforms, gains = estimate([everything], iterations)
        common, result.total = transforms[0], float(gains[0]) / everything.count
    for speaker in others:
        result.transforms[speaker] = common.astype(np.float32)
