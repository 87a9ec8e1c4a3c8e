"""STM files: reference segments, as NIST's tools read them; and whether a data set has them all."""

from __future__ import annotations

import math
import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from hadpsgd.corpus.datadir import DataDir
from hadpsgd.errors import UserError
from hadpsgd.files import read_whole, write_text

IGNORED = ("IGNORE_TIME_SEGMENT_IN_SCORING", "IGNORETIMESEGMENTINSCORING")
"""Words that keep a segment from being scored."""
_NAMED = 5
_NO_LABEL = "<O>"
COMMENTS = (';; LABEL "O" "Overall" "Overall"',)
"""What defines the label of segments that have none: hubscr stops at one that is not defined."""


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A line of an STM file: file, channel, speaker, begin and end in seconds, label, text."""

    file: str
    channel: str
    speaker: str
    begin: float
    end: float
    text: str
    label: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """What a CTM word must share with it: file and channel, case aside."""
        return self.file.lower(), self.channel.lower()

    @property
    def ignored(self) -> bool:
        """Whether it is left out of scoring."""
        return any(mark in self.text.upper() for mark in IGNORED)

    def line(self) -> str:
        """The line of an STM file."""
        parts = [self.file, self.channel, self.speaker, f"{self.begin:.2f}", f"{self.end:.2f}"]
        # a first word such as <b> would be the label
        label = self.label or (_NO_LABEL if self.text.startswith("<") else "")
        return " ".join([*parts, *([label] if label else []), self.text]).rstrip()


def is_comment(line: str) -> bool:
    """A line that is no segment: empty, or a comment."""
    return not line.strip() or line.lstrip().startswith(";;")


def lines_of(path: Path) -> list[str]:
    """Lines of a text file, which may be gzipped.

    Raises:
        UserError: there is none, or it is not UTF-8.
    """
    try:
        text = read_whole(path).decode("utf-8-sig").replace("\r\n", "\n")
    except FileNotFoundError:
        raise UserError("no such file", where=path) from None
    except UnicodeDecodeError:
        raise UserError("not UTF-8 text", where=path) from None
    # not splitlines(): it also splits at characters that may stand inside a line
    return text.removesuffix("\n").split("\n") if text else []


def read(path: Path) -> list[Segment]:
    """Read an STM file; the segments of a file and channel must stand together, in order of time.

    Raises:
        UserError: it is missing or empty, a line is not `file channel speaker begin end text`, or
            segments are out of order.
    """
    segments: list[Segment] = []
    latest: dict[tuple[str, str], float] = {}
    for number, line in enumerate(lines_of(path), 1):
        if not is_comment(line):
            segments.append(parsed(line, where=f"{path}:{number}"))
            _check_order(segments, latest, f"{path}:{number}")
    if not segments:
        raise UserError("no segments", where=path, fix="Give the reference transcripts")
    return segments


def _check_order(
    segments: Sequence[Segment], latest: dict[tuple[str, str], float], where: str
) -> None:
    """Hold the last segment against those before it; `latest` is the last begin of each channel.

    Words go to the first segment that ends after them (SCTK's stm2ctm.c): out of order they would
    go to wrong ones, and nothing would say so.
    """
    new = segments[-1]
    before, latest[new.key] = latest.get(new.key), new.begin
    if before is None:
        return
    what = ""
    if new.begin < before:
        what = f"the segment at {new.begin:.2f} comes after {before:.2f}: not in order of time"
    elif segments[-2].key != new.key:
        what = f"the segments of {new.file} {new.channel} are in pieces: others stand between them"
    if what:
        raise UserError(what, where=where, fix="Sort it: sort -k1,1 -k2,2 -k4,4n")


def parsed(line: str, *, where: str) -> Segment:
    """The segment of a line; raises UserError where it is none."""
    fields = line.split(maxsplit=5)
    try:
        file, channel, speaker, begin, end = fields[:5]
        times = float(begin), float(end)
        if not all(map(math.isfinite, times)):
            raise ValueError
    except ValueError:
        raise UserError("not `file channel speaker begin end text`", where=where) from None
    if times[1] < times[0]:
        raise UserError("the segment ends before it begins", where=where)
    text, label = (fields[5] if len(fields) > 5 else ""), ""
    if text.startswith("<"):
        label, _, text = text.partition(" ")
    return Segment(
        file=file,
        channel=channel,
        speaker=speaker,
        begin=times[0],
        end=times[1],
        text=text.strip(),
        label=label,
    )


def read_comments(path: Path) -> list[str]:
    """The comment lines of an STM file: NIST's tools look there for what its labels mean."""
    return [line for line in lines_of(path) if line.lstrip().startswith(";;")]


def matches(file: str, patterns: Sequence[str]) -> bool:
    """Whether a file's name is one of those that wildcards stand for, case aside."""
    return any(fnmatchcase(file.lower(), pattern.lower()) for pattern in patterns)


def copy_part(source: Path, patterns: Sequence[str], out: Path) -> None:
    """Write the lines of an STM file whose file names match, and its comments; says how many."""
    lines = lines_of(source)
    kept = [s for s in lines if is_comment(s) or matches(s.split(maxsplit=1)[0], patterns)]
    write_text(out, "".join(f"{line}\n" for line in kept))
    if len(kept) < len(lines):
        every, some = (sum(not is_comment(line) for line in each) for each in (lines, kept))
        named = ", ".join(patterns)
        print(f"{source}: {some} of its {every} segments, of recordings {named}", file=sys.stderr)


def check(path: Path, segments: Sequence[Segment], data: DataDir, limit: float) -> None:
    """Hold the segments to be scored against the utterances of a data set.

    A word of a segment whose middle lies in no utterance can only count as deleted.

    Raises:
        UserError: a recording of the data is not in the STM, or more than a share `limit` of the
            words lie in no utterance.
    """
    spans = _Spans(data)
    _check_files(path, {segment.key for segment in segments}, spans, data)
    scored = [segment for segment in segments if not segment.ignored]
    lost = [segment for segment in scored if not spans.cover(segment)]
    words, gone = (sum(len(s.text.split()) for s in some) for some in (scored, lost))
    if not gone:
        return
    share = f"{gone} of {words} words ({100 * gone / words:.1f} %)"
    if gone <= limit * words:
        print(f"{path}: {share} lie in no utterance and count as deleted", file=sys.stderr)
        return
    there = {file for file, _ in spans.times}
    lacking = sorted({s.file for s in lost if s.file.lower() not in there})
    if lacking:
        named = f"{len(lacking)}: {_some(lacking)}"
        what = f"{share} are of recordings that the data lacks ({named})"
        pattern = pattern_of(sorted(there), [name.lower() for name in lacking])
        fix = f"Score a part of it: data: {data.path}, recordings: {pattern}"
        raise UserError(f"{what}; they would count as deleted", where=path, fix=fix)
    first = f"{lost[0].file} {lost[0].channel} {lost[0].begin:.2f}"
    raise UserError(
        f"{share} lie in no utterance and would count as deleted (first: {first})",
        where=path,
        fix="Is it another data set's? Else raise corpus.max_uncovered",
    )


def _check_files(path: Path, known: set[tuple[str, str]], spans: _Spans, data: DataDir) -> None:
    """The STM must have all recordings of the data: nothing can be counted where it has none."""
    unknown = sorted(spans.times.keys() - known)
    if not unknown:
        return
    names = _some([f"{file} {channel}" for file, channel in unknown])
    count = f"{len(unknown)} of {len(spans.times)}"
    fix = "Write reco2file_and_channel" if not data.channels else "Complete it, or restrict the set"
    raise UserError(f"lacks {count} recordings of the data: {names}", where=path, fix=fix)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (" ..." if len(names) > _NAMED else "")


def pattern_of(names: Sequence[str], others: Iterable[str]) -> str:
    """A wildcard that names have and others have not; the names where there is none."""
    low, high = min(names), max(names)
    length = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    prefix = low[:length]
    short = re.match(r".*[_-]", prefix)
    for candidate in ([short[0]] if short else []) + [prefix]:
        if candidate and not any(other.startswith(candidate) for other in others):
            return f"'{candidate}*'"
    return f"[{_some(names)}]"


def check_marks(path: Path, segments: Iterable[Segment], *, filtered: bool) -> None:
    """NIST's tools stop at alternatives `{ a / b }` and, where a GLM filters, at optional `(word)`
    that do not close.

    Raises:
        UserError: the first segment that has such.
    """
    for segment in segments:
        where = f"{path}: {segment.file} {segment.channel} {segment.begin:.2f}"
        if wrong_braces(segment.text):
            raise UserError("braces that do not fit", where=where, fix="Correct it: { a / b }")
        if filtered and wrong_parentheses(segment.text):
            fix = "Correct it; Kaldi's data preparation writes (( as ("
            raise UserError("parentheses that do not fit", where=where, fix=fix)


def check_transcripts(path: Path, segments: Iterable[Segment]) -> None:
    """Transcripts that become an STM may have nothing that is no word there.

    Raises:
        UserError: the first segment whose line were a comment, or which has a mark for a word.
    """
    for segment in segments:
        where = f"{path}: {segment.file} {segment.channel} {segment.begin:.2f}"
        if is_comment(segment.file):
            raise comment(segment.file, where=where)
        for word in filter(is_mark, segment.text.split()):
            raise mark(word, where=where)


def is_mark(word: str) -> bool:
    """Whether it is no word in an STM: @ is nothing, and braces hold alternatives, inside of words,
    too. (A / outside of braces is a word.)"""
    return word == "@" or "{" in word or "}" in word


def comment(file: str, *, where: object) -> UserError:
    """What is told of a recording that NIST's tools cannot see."""
    what = f"recording '{file}' cannot be scored: lines of STM and CTM that begin so are comments"
    return UserError(what, where=where, fix="Rename it")


def mark(word: str, *, where: object) -> UserError:
    """What is told of a word that is none for NIST's tools."""
    what = f"'{word}' would not be scored as a word: NIST's tools take {{ a / b }} and @ for marks"
    return UserError(what, where=where, fix="Write it otherwise, or give an stm")


def wrong_braces(text: str) -> bool:
    """Whether a brace closes that was not open, or stays open."""
    depth = 0
    for letter in text:
        depth += (letter == "{") - (letter == "}")
        if depth < 0:
            return True
    return depth != 0


def wrong_parentheses(text: str) -> bool:
    """Whether parentheses are nested, or do not close."""
    depth = 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if depth not in (0, 1):
            return True
    return depth != 0


class _Spans:
    """When the utterances of each file and channel are, in order of their begin."""

    def __init__(self, data: DataDir) -> None:
        self.times: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for utterance in data:
            file, channel = data.file_and_channel(utterance)
            end = float("inf") if utterance.end is None else utterance.end
            times = self.times.setdefault((file.lower(), channel.lower()), [])
            times.append((utterance.start, end))
        self._latest = {key: list(_latest(sorted(times))) for key, times in self.times.items()}
        for times in self.times.values():
            times.sort()

    def cover(self, segment: Segment) -> bool:
        """Whether the middle of a segment lies in an utterance."""
        times = self.times.get(segment.key)
        if not times:
            return False
        middle = (segment.begin + segment.end) / 2
        before = bisect_right(times, (middle, float("inf")))
        return before > 0 and self._latest[segment.key][before - 1] >= middle


def _latest(times: Iterable[tuple[float, float]]) -> Iterator[float]:
    """The latest end so far."""
    end = 0.0
    for _, stop in times:
        end = max(end, stop)
        yield end
