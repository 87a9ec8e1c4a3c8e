"""What an alignment looks like: durations, silence, phone times (ali-to-phones --ctm-output)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hadpsgd.gmm.phone_segments import Segments

FRAME_SECONDS = 0.01
LONGEST = 500
"""Frames from which on durations are counted together."""
_DEVIATIONS = 4.0


def base_phone(name: str) -> str:
    """A phone's name without its place in the word (`AH_B` is `AH`)."""
    stem, mark, place = name.rpartition("_")
    return stem if mark and place in ("B", "I", "E", "S") else name


@dataclass(kw_only=True)
class Durations:
    """How often each phone (without its place in the word) has lasted how many frames.

    counts: by phone int64 [LONGEST + 1]; silence: by utterance the share of its frames that are
    silence; frames, silent: in total; cut: utterances that end in the middle of a phone.
    """

    counts: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    silence: dict[str, float] = field(default_factory=dict)
    frames: int = 0
    silent: int = 0
    cut: list[str] = field(default_factory=list)

    def add(
        self, utterance: str, parts: Segments, names: Mapping[int, str], quiet: Sequence[int]
    ) -> None:
        """Count an utterance."""
        lengths = np.minimum(parts.lengths, LONGEST)
        for phone in np.unique(parts.phones).tolist():
            name = base_phone(names[phone])
            counts = self.counts.setdefault(name, np.zeros(LONGEST + 1, np.int64))
            counts += np.bincount(lengths[parts.phones == phone], minlength=LONGEST + 1)
        frames = int(parts.lengths.sum())
        silent = int(parts.lengths[np.isin(parts.phones, quiet)].sum())
        self.frames += frames
        self.silent += silent
        self.silence[utterance] = silent / max(frames, 1)
        if not parts.whole:
            self.cut.append(utterance)

    @property
    def silence_share(self) -> float:
        """Share of all frames that are silence."""
        return self.silent / max(self.frames, 1)

    def median(self, phone: str) -> float:
        """Median duration of a phone in seconds."""
        counts = self.counts[phone]
        middle = np.searchsorted(np.cumsum(counts), (counts.sum() + 1) // 2)
        return float(middle) * FRAME_SECONDS


def phone_ctm(utterance: str, parts: Segments, names: Mapping[int, str]) -> str:
    """Lines `utterance 1 start duration phone`, in seconds."""
    rows = zip(parts.phones.tolist(), parts.starts.tolist(), parts.lengths.tolist(), strict=True)
    return "".join(
        f"{utterance} 1 {start * FRAME_SECONDS:.3f} {length * FRAME_SECONDS:.3f} {names[phone]}\n"
        for phone, start, length in rows
    )


class Outlier(NamedTuple):
    """An utterance whose score is far below the others'."""

    utterance: str
    score: float


def low_outliers(
    scores: Mapping[str, float], *, deviations: float = _DEVIATIONS
) -> tuple[list[Outlier], float]:
    """Utterances below the median by so many standard deviations, worst first; and that limit.

    The deviation is estimated from the median absolute deviation, which outliers do not move.
    """
    if not scores:
        return [], -np.inf
    values = np.array(list(scores.values()))
    middle = float(np.median(values))
    limit = middle - deviations * 1.4826 * float(np.median(np.abs(values - middle)))
    found = [Outlier(name, score) for name, score in scores.items() if score < limit]
    return sorted(found, key=lambda outlier: outlier.score), limit


class Interval(NamedTuple):
    """A label from `start` to `end`, in seconds."""

    start: float
    end: float
    label: str


def phone_intervals(parts: Segments, names: Mapping[int, str]) -> list[Interval]:
    """The phones of an utterance."""
    ends = parts.starts + parts.lengths
    rows = zip(parts.phones.tolist(), parts.starts.tolist(), ends.tolist(), strict=True)
    return [
        Interval(start * FRAME_SECONDS, end * FRAME_SECONDS, names[phone])
        for phone, start, end in rows
    ]


def word_intervals(phones: Sequence[Interval], words: Sequence[str]) -> list[Interval]:
    """Words over phones that say where words begin and end (_B, _E, _S); silence has no label.

    None at all where the phones do not say so, or are not as many words as there should be.
    """
    found: list[Interval] = []
    start, left = 0.0, list(words)
    for phone in phones:
        place = phone.label.rpartition("_")[2] if "_" in phone.label else ""
        if place in ("B", "S"):
            start = phone.start
        if place in ("E", "S"):
            if not left:
                return []
            found.append(Interval(start, phone.end, left.pop(0)))
        elif place not in ("B", "I"):
            found.append(Interval(phone.start, phone.end, ""))
    return [] if left else found


def text_grid(tiers: Mapping[str, Sequence[Interval]]) -> str:
    """A TextGrid of Praat (long form) with one interval tier for each entry."""
    end = max((tier[-1].end for tier in tiers.values() if tier), default=0.0)
    lines = [
        'File type = "ooTextFile"', 'Object class = "TextGrid"', "", "xmin = 0",
        f"xmax = {end:.3f}", "tiers? <exists>", f"size = {len(tiers)}", "item []:",
    ]  # fmt: skip
    for number, (name, tier) in enumerate(tiers.items(), 1):
        lines += [
            f"    item [{number}]:", '        class = "IntervalTier"', f'        name = "{name}"',
            "        xmin = 0", f"        xmax = {end:.3f}",
            f"        intervals: size = {len(tier)}",
        ]  # fmt: skip
        lines += _intervals(tier)
    return "\n".join(lines) + "\n"


def _intervals(tier: Iterable[Interval]) -> list[str]:
    lines = []
    for number, interval in enumerate(tier, 1):
        label = interval.label.replace('"', '""')
        lines += [
            f"        intervals [{number}]:", f"            xmin = {interval.start:.3f}",
            f"            xmax = {interval.end:.3f}", f'            text = "{label}"',
        ]  # fmt: skip
    return lines
