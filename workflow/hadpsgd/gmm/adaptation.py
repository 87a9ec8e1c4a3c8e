"""FMLLR transforms of many speakers; what to do with too little speech.

Transforms are estimated, and sums dropped, as soon as all utterances of `ENOUGH` speakers are in:
where data are sorted by speaker memory holds the sums of a few (0.3 MB each at 40 dimensions). Each
process of a pass does so over its share of the data. The few that are left of a share, and those
whose utterances lie in several, are gathered and estimated by all processes afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from hadpsgd.gmm.diag_gmm import Array
from hadpsgd.gmm.fmllr import ITERATIONS, Sums, estimate, identity
from hadpsgd.gmm.statistics import Doubles
from hadpsgd.parallel import map_in_order

MIN_COUNT = 500.0
"""Frames (weighted) that a transform of one's own takes: Kaldi's --fmllr-min-count."""
BATCH, ENOUGH = 16, 4
"""Speakers that are worked on at a time, at most, and while others are still to come at least: one
alone takes four times as long as one of 16, one of 4 twice as long."""


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

    def add(self, other: Adaptation) -> None:
        """Other speakers too."""
        self.transforms |= other.transforms
        self.counts |= other.counts
        self.gains |= other.gains
        self.few += other.few
        self.singular += other.singular

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


@dataclass
class Speakers:
    """Of all speakers seen so far the sums, or what was made of them.

    everything: sums of all; waiting: of speakers that have no transform yet; found: the others'.
    """

    everything: Sums
    waiting: dict[str, Part] = field(default_factory=dict)
    found: Adaptation = field(default_factory=Adaptation)

    @classmethod
    def nobody(cls, dim: int) -> Speakers:
        """None yet."""
        return cls(Sums.zeros(dim))

    def add(self, part: Part) -> None:
        """Some utterances of a speaker; its sums may be changed afterwards."""
        self.everything += part.sums
        self._wait(part)

    def _wait(self, part: Part) -> None:
        speaker, utterances, sums = part
        if speaker in self.waiting:
            _, before, own = self.waiting[speaker]
            own += sums
            utterances, sums = utterances + before, own
        self.waiting[speaker] = Part(speaker, utterances, sums)

    def __iadd__(self, other: Speakers) -> Speakers:
        """Other utterances."""
        self.everything += other.everything
        self.found.add(other.found)
        for part in other.waiting.values():
            self._wait(part)
        return self


@dataclass(frozen=True, kw_only=True)
class Estimation:
    """How transforms are estimated.

    utterances: how many each speaker has. Speakers with fewer frames than `min_count` get the
    transform of all speakers together; the identity where that has too little too. So do those
    in `utterances` that never come.
    """

    utterances: Mapping[str, int]
    min_count: float = MIN_COUNT
    iterations: int = ITERATIONS

    def settle(self, speakers: Speakers) -> None:
        """Estimate the transforms of speakers whose utterances are all in, if they are enough."""
        parts = speakers.waiting.values()
        ready = [part for part in parts if part.utterances >= self.utterances[part.speaker]]
        if len(ready) < ENOUGH:
            return
        for first in range(0, len(ready), BATCH):
            chosen = self._counted(speakers, ready[first : first + BATCH])
            if chosen:
                _keep(speakers.found, chosen, _estimator(self.iterations)(chosen))

    def finish(self, speakers: Speakers, jobs: int = 1) -> Adaptation:
        """All transforms, estimated by `jobs` processes; nothing comes any more."""
        result, left = speakers.found, self._counted(speakers, list(speakers.waiting.values()))
        batches = [left[first : first + BATCH] for first in range(0, len(left), BATCH)]
        make = partial(_estimator, self.iterations)
        found = map_in_order(make, batches, jobs) if batches else ()
        for chosen, estimated in zip(batches, found, strict=True):
            _keep(result, chosen, estimated)
        for speaker in self.utterances:
            if speaker not in result.counts:
                result.counts[speaker] = 0.0
                result.few.append(speaker)
        self._share(result, speakers.everything)
        return result

    def _counted(self, speakers: Speakers, parts: Sequence[Part]) -> list[Part]:
        """Those with enough frames; none of them waits any more."""
        result = speakers.found
        for part in parts:
            del speakers.waiting[part.speaker]
            result.counts[part.speaker] = part.sums.count
        result.few += [part.speaker for part in parts if part.sums.count <= self.min_count]
        return [part for part in parts if part.sums.count > self.min_count]

    def _share(self, result: Adaptation, everything: Sums) -> None:
        others = result.few + result.singular
        if not others:
            return
        common = identity(len(everything.linear))
        if everything.count > self.min_count:
            transforms, gains = estimate([everything], self.iterations)
            common, result.total = transforms[0], float(gains[0]) / everything.count
        for speaker in others:
            result.transforms[speaker] = common.astype(np.float32)


Estimated = tuple[Doubles, Doubles]
"""Transforms [n, dim, dim + 1], and their gains [n]."""


def _estimator(iterations: int) -> Callable[[Sequence[Part]], Estimated]:
    return lambda parts: estimate([part.sums for part in parts], iterations)


def _keep(result: Adaptation, parts: Sequence[Part], estimated: Estimated) -> None:
    for part, transform, gain in zip(parts, *estimated, strict=True):
        if gain > 0:
            result.transforms[part.speaker] = transform.astype(np.float32)
            result.gains[part.speaker] = float(gain) / part.sums.count
        else:
            result.singular.append(part.speaker)


def adapt(
    parts: Iterable[Part], utterances: Mapping[str, int], *, dim: int, min_count: float = MIN_COUNT
) -> Adaptation:
    """Estimate every speaker's transform from a stream of parts, as `Estimation` says."""
    estimation = Estimation(utterances=utterances, min_count=min_count)
    speakers = Speakers.nobody(dim)
    for part in parts:
        speakers.add(part)
        estimation.settle(speakers)
    return estimation.finish(speakers)
