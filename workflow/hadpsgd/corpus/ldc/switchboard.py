"""Switchboard-1 Release 2 (LDC97S62) with Mississippi State's transcripts of 1998.

Layout: sw02001.sph of two mu-law channels; 20/2001/sw2001A-ms98-a-trans.text in the folder of the
transcripts, with lines `sw2001A-ms98-a-0001 0.000000 0.977625 words`. Sets are those of Kaldi's
egs/swbd/s5c: a side of a call is a recording and a speaker, utterances are
sw02001-A_000098-001156.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from hadpsgd.corpus.datadir import Utterance
from hadpsgd.corpus.ldc import names
from hadpsgd.corpus.ldc.folders import every
from hadpsgd.corpus.ldc.words import Acronyms, switchboard_words
from hadpsgd.corpus.stm import lines_of
from hadpsgd.errors import UserError

_LINE = re.compile(r"sw(\d{4})([AB])-ms98-a-\S+\s+(\d+(?:\.\d*)?)\s+(\d+(?:\.\d*)?)(?:\s+(.*))?")


def transcripts(folder: Path) -> list[Path]:
    """The files of the transcripts; raises UserError where there are none."""
    return every(folder, names.TRANSCRIPTS)


def utterances(folder: Path, acronyms: Acronyms) -> list[Utterance]:
    """All utterances in which somebody speaks or makes a noise, in the order of their ids.

    Raises:
        UserError: a line is not what it should be, or two are one utterance.
    """
    found: dict[str, Utterance] = {}
    for path in transcripts(folder):
        for number, line in enumerate(lines_of(path), 1):
            if line.strip() and (utterance := _utterance(line, acronyms, f"{path}:{number}")):
                if utterance.id in found:
                    raise UserError(f"a second utterance {utterance.id}", where=f"{path}:{number}")
                found[utterance.id] = utterance
    return [found[name] for name in sorted(found)]


def _utterance(line: str, acronyms: Acronyms, where: str) -> Utterance | None:
    match = _LINE.fullmatch(line.strip())
    if match is None:
        raise UserError("not `sw<call><side>-ms98-a-<number> begin end words`", where=where)
    call, side, *times, text = match.groups()
    begin, end = (int(100 * float(time) + 0.5) for time in times)
    if end < begin:
        raise UserError("the utterance ends before it begins", where=where)
    words = switchboard_words(text or "", acronyms)
    if not words:
        return None
    speaker = f"sw0{call}-{side}"
    return Utterance(
        id=f"{speaker}_{begin:06d}-{end:06d}",
        speaker=speaker,
        recording=speaker,
        text=words,
        start=begin / 100,
        end=end / 100,
    )


def without_repeats(said: Iterable[Utterance], most: int) -> Iterator[Utterance]:
    """At most so many utterances of one transcript, as Kaldi's remove_dup_utts.sh keeps.

    Which of them does not depend on the order of calls: those whose id has the least hash.
    """
    by_text: dict[str, list[Utterance]] = defaultdict(list)
    for utterance in said:
        by_text[utterance.text].append(utterance)
    for same in by_text.values():
        if len(same) > most:
            same = sorted(same, key=lambda u: hashlib.sha256(u.id.encode()).digest())[:most]
        yield from same
