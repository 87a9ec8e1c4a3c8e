"""Fisher English, parts 1 and 2 (LDC2004S13 and 2005S13, transcripts LDC2004T19 and 2005T19).

Layout: fe_03_00001.sph of two channels; fe_03_00001.txt, whose first line is `# fe_03_00001.sph`,
with lines `begin end A: words`. As Kaldi's egs/fisher_swbd/s5 prepares them (its
local/fisher_data_prep.sh): utterances in which a transcriber was not sure, `((`, are left out;
other noises than laughter are one. Acronyms are i._b._m. already.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from hadpsgd.corpus.datadir import Utterance
from hadpsgd.corpus.ldc import names
from hadpsgd.corpus.ldc.folders import every
from hadpsgd.corpus.stm import lines_of
from hadpsgd.errors import UserError

_LINE = re.compile(r"(\d+(?:\.\d*)?)\s+(\d+(?:\.\d*)?)\s+([AB])\s*:\s*(.*)")
_UNSURE = ("((", "[[")
_NOISES = dict.fromkeys(("[sigh]", "[cough]", "[mn]", "[breath]", "[lipsmack]"), "[noise]")
_NOISES["[laugh]"] = "[laughter]"


def transcripts(folders: Iterable[Path]) -> list[Path]:
    """The files of the transcripts; raises UserError where a folder has none."""
    return [path for folder in folders for path in every(folder, names.FISHER_TRANSCRIPTS)]


def utterances(folders: Iterable[Path]) -> list[Utterance]:
    """All utterances with words; says how many are left out since they are not sure.

    Raises:
        UserError: a line is not what it should be, a file is of another call, or two utterances
            are one.
    """
    found: dict[str, Utterance] = {}
    unsure = 0
    for path in transcripts(folders):
        lines = lines_of(path)
        if lines[:1] != [f"# {path.stem}.sph"]:
            raise UserError(f"not `# {path.stem}.sph`", where=f"{path}:1", fix="Copy it again")
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            utterance = _utterance(line, path.stem, f"{path}:{number}")
            if any(mark in utterance.text for mark in _UNSURE):
                unsure += 1
            elif utterance.id in found:
                raise UserError(f"a second utterance {utterance.id}", where=f"{path}:{number}")
            elif utterance.text:
                found[utterance.id] = utterance
    if unsure:
        total = unsure + len(found)
        print(f"Fisher: skipped: {unsure} of {total} utterances are not sure", file=sys.stderr)
    return [found[name] for name in sorted(found)]


def _utterance(line: str, call: str, where: str) -> Utterance:
    match = _LINE.fullmatch(line.strip())
    if match is None:
        raise UserError("not `begin end A: words`", where=where)
    begin, end = (int(float(time) * 100.0) for time in match.groups()[:2])
    if end < begin:
        raise UserError("the utterance ends before it begins", where=where)
    speaker = f"{call}-{match[3]}"
    return Utterance(
        id=f"{speaker}-{begin:06d}-{end:06d}",
        speaker=speaker,
        recording=speaker,
        text=" ".join(_NOISES.get(word, word) for word in match[4].lower().split()),
        start=begin / 100,
        end=end / 100,
    )
