"""CTM files (timed words), read with every fault named; CTM and STM files are written here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hadpsgd.corpus.stm import Segment, is_comment, lines_of
from hadpsgd.errors import UserError
from hadpsgd.texts import words_of


@dataclass(frozen=True, kw_only=True)
class TimedWord:
    """A line of a CTM file: file, channel, begin and duration in seconds, word, confidence."""

    file: str
    channel: str
    begin: float
    duration: float
    word: str
    confidence: float | None = None

    @property
    def key(self) -> tuple[str, str]:
        """File and channel, case aside."""
        return self.file.lower(), self.channel.lower()

    @property
    def middle(self) -> float:
        """The second that decides to which segment it belongs."""
        return self.begin + self.duration / 2.0

    def line(self) -> str:
        """The line of a CTM file."""
        said = "" if self.confidence is None else f" {self.confidence:.4f}"
        return f"{self.file} {self.channel} {self.begin:.2f} {self.duration:.2f} {self.word}{said}"


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    return ((n, line) for n, line in enumerate(lines_of(path), 1) if not is_comment(line))


def read_ctm(path: Path) -> list[TimedWord]:
    """Read a CTM file; words of a file and channel must be in order of time.

    Raises:
        UserError: a line is not `file channel begin duration word [confidence]` with a confidence
            from 0 to 1, or words are out
            of order or overlap by more than 0.1 s.
    """
    words: list[TimedWord] = []
    last: dict[tuple[str, str], TimedWord] = {}
    inside = False  # an alternation, whose words may share their times
    for number, line in _lines(path):
        word = _ctm_word(words_of(line), f"{path}:{number}")
        mark = word.word.upper()
        if mark.startswith("<ALT"):
            inside = mark != "<ALT_END>"
        elif not inside:
            _check_order(last.get(word.key), word, f"{path}:{number}")
            last[word.key] = word
        words.append(word)
    return words


_OVERLAP = 0.1  # seconds: systems round times
_ROUNDING = 0.001  # of confidences that are sums of probabilities


def _check_order(before: TimedWord | None, word: TimedWord, where: str) -> None:
    if before is None:
        return
    if word.begin < before.begin:
        raise UserError(
            f"'{word.word}' at {word.begin:.2f} comes after {before.begin:.2f}: not in order",
            where=where,
            fix="Sort it: sort -k1,1 -k2,2 -k3,3n",
        )
    if word.begin + _OVERLAP < before.begin + before.duration:
        raise UserError(
            f"'{word.word}' at {word.begin:.2f} overlaps '{before.word}', which ends at "
            f"{before.begin + before.duration:.2f}",
            where=where,
            fix="Words of a channel may not overlap",
        )


def _ctm_word(fields: list[str], where: str) -> TimedWord:
    try:
        file, channel, begin, duration, word = fields[:5]
        if word.upper().startswith("<ALT"):
            return TimedWord(file=file, channel=channel, begin=0.0, duration=0.0, word=word)
        confidence = _confidence(fields[5], where) if len(fields) > 5 else None
        made = TimedWord(
            file=file,
            channel=channel,
            begin=float(begin),
            duration=float(duration),
            word=word,
            confidence=confidence,
        )
        if not math.isfinite(made.begin + made.duration):
            raise ValueError
    except ValueError:
        raise UserError("not `file channel begin duration word`", where=where) from None
    if made.duration < 0:
        raise UserError("a negative duration", where=where)
    return made


def _confidence(text: str, where: str) -> float | None:
    if text == "NA":
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= 1.0 + _ROUNDING:
        fix = "Give probabilities, or NA where there are none"
        raise UserError(f"confidence {text} is not from 0 to 1", where=where, fix=fix)
    return min(value, 1.0)


def write_lines(
    path: Path, items: Iterable[Segment | TimedWord], comments: Iterable[str] = ()
) -> None:
    """Write an STM or CTM file (into a folder that is renamed as a whole)."""
    with path.open("w", encoding="utf-8") as stream:
        stream.writelines(f"{line}\n" for line in comments)
        stream.writelines(f"{item.line()}\n" for item in items)


def in_order(words: Iterable[TimedWord]) -> list[TimedWord]:
    """Words as NIST's tools want them: by file, channel and time."""
    return sorted(words, key=lambda w: (w.file, w.channel, w.begin))
