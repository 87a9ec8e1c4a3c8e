"""Hub5 2000, English (LDC2002S09, LDC2002T43): 20 calls of Switchboard and 20 of CallHome.

The pem says which segments are scored (`file channel speaker begin end`), the stm what is said in
them. As Kaldi's egs/swbd/s5c prepares them (local/eval2000_data_prep.sh): segments are extended by
0.1 s on each side, into silence alone; marks in the stm that NIST's tools refuse are put right.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from hadpsgd.corpus import stm
from hadpsgd.corpus.datadir import Utterance
from hadpsgd.corpus.ldc import names
from hadpsgd.corpus.ldc.folders import one
from hadpsgd.corpus.stm import lines_of
from hadpsgd.errors import UserError
from hadpsgd.files import read_whole, write_text

_EXTEND = 0.1
_REPLACED = (("((", "("), ("<B_ASIDE>", ""), ("<E_ASIDE>", ""))

Key = tuple[str, str, int, int]
"""File, channel, begin and end in hundredths of a second."""


@dataclass(frozen=True)
class Test:
    """A test set."""

    utterances: list[Utterance]
    """Those that are scored, with the stm's words in lower case."""
    lines: list[str]
    """Of its stm, comments included."""
    ignored: list[str]
    """Segments of the pem that the stm does not score."""

    def write(self, folder: Path, *, glm: Path) -> None:
        """Write stm and glm."""
        write_text(folder / "stm", "".join(f"{line}\n" for line in self.lines))
        (folder / "glm").write_bytes(read_whole(glm))


def read(*, audio: Path, transcripts: Path, name: str) -> Test:
    """Read a test set of `names.TESTS`.

    Raises:
        UserError: a file is missing, a line is not what it should be, or a segment of the stm that
            is scored is not in the pem (file and line are named).
    """
    path, prefix = one(transcripts, names.STM), names.TESTS[name]
    segments = _pem(one(audio, names.PEM), prefix)
    lines, said = [], dict[Key, str]()
    for number, line in enumerate(lines_of(path), 1):
        for old, new in _REPLACED:
            line = line.replace(old, new)
        if stm.is_comment(line):
            lines.append(line)
        elif line.lower().startswith(prefix):
            lines.append(line)
            segment = stm.parsed(line, where=f"{path}:{number}")
            key = _key(segment.file, segment.channel, segment.begin, segment.end)
            if segment.ignored:
                continue
            if key not in segments:
                raise UserError(
                    f"this segment is not in {names.PEM}",
                    where=f"{path}:{number}",
                    fix="Copy both again",
                )
            said[key] = segment.text.lower()
    if not said:
        raise UserError(f"no segment of recordings {prefix}*", where=path)
    found = [
        Utterance(
            id=f"{file}-{channel}_{key[2]:06d}-{key[3]:06d}",
            speaker=f"{file}-{channel}",
            recording=f"{file}-{channel}",
            text=" ".join(said[key].split()),
            start=begin,
            end=end,
        )
        for key, (file, channel, begin, end) in _extended(segments).items()
        if key in said
    ]
    return Test(found, lines, [" ".join(map(str, key)) for key in segments if key not in said])


def _key(file: str, channel: str, begin: float, end: float) -> Key:
    return file.lower(), channel.upper(), int(begin * 100), int(end * 100)


_Span = tuple[str, str, float, float]
"""File, channel, begin and end in seconds."""


def _pem(path: Path, prefix: str) -> dict[Key, _Span]:
    found = {}
    for number, line in enumerate(lines_of(path), 1):
        if stm.is_comment(line):
            continue
        segment = stm.parsed(line, where=f"{path}:{number}")
        if segment.file.lower().startswith(prefix):
            key = _key(segment.file, segment.channel, segment.begin, segment.end)
            found[key] = (*key[:2], segment.begin, segment.end)
    return found


def _extended(segments: dict[Key, _Span]) -> dict[Key, _Span]:
    """Each up to half of the silence between it and its neighbours."""
    sides = defaultdict(list)
    for key, span in segments.items():
        sides[key[:2]].append((key, span))
    found = {}
    for spans in sides.values():
        spans.sort(key=lambda item: item[1][2])
        gaps = [after[2] - before[3] for (_, before), (_, after) in pairwise(spans)]
        room = [2 * _EXTEND, *gaps, 2 * _EXTEND]
        for (key, (file, channel, begin, end)), left, right in zip(
            spans, room[:-1], room[1:], strict=True
        ):
            more = [min(_EXTEND, max(gap, 0.0) / 2) for gap in (left, right)]
            times = round(max(begin - more[0], 0.0), 2), round(end + more[1], 2)
            found[key] = (file, channel, *times)
    return found
