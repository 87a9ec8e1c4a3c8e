"""References for NIST's scoring: STM (segments with words) and GLM (what counts as equal)."""

from __future__ import annotations

from pathlib import Path

from hadpsgd.corpus import audio
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.files import write_text

_SEX = {"f": "female", "m": "male"}
_STM_HEAD = """\
;; CATEGORY "0" "" ""
;; LABEL "O" "Overall" "Overall"
;; CATEGORY "1" "Sex" "Sex of the speaker"
;; LABEL "female" "Female" "Female"
;; LABEL "male" "Male" "Male"
"""
HESITATIONS = ("uh", "um", "eh", "mm", "hm", "ah", "huh", "ha", "er", "oof", "hee", "ach")
"""What the Hub5 GLM takes for one and the same hesitation."""
_GLM_HEAD = """\
;; Hesitations are one word, %HESITATION, which may be left out.
* name "hesitations"
* desc "Minimal GLM: filled pauses as in Hub5"
* format = 'NIST1'
* max_nrules = '100'
* copy_no_hit = 'T'
* case_sensitive = 'F'
"""


def write_stm(path: Path, data: DataDir) -> None:
    """Write `file channel speaker start end <labels> words`, sorted by file, channel, start.

    Raises:
        UserError: an utterance reaches to the end of a recording that cannot be opened.
    """
    lines = []
    for utterance in data:
        end = utterance.end
        if end is None:
            end = audio.info(data.recordings[utterance.recording]).seconds
        file, channel = data.file_and_channel(utterance)
        gender = _SEX.get(data.gender.get(utterance.speaker, ""))
        labels = f"<O,{gender}>" if gender else "<O>"
        times = f"{utterance.start:.2f} {end:.2f}"
        line = f"{file} {channel} {utterance.speaker} {times} {labels} {utterance.text}\n"
        lines.append((file, channel, utterance.start, line))
    write_text(path, _STM_HEAD + "".join(line for *_, line in sorted(lines)))


def write_glm(path: Path) -> None:
    """Write a GLM that maps filled pauses to %HESITATION."""
    rules = "".join(f"[{word}] => %HESITATION / [ ] __ [ ]\n" for word in HESITATIONS)
    write_text(path, _GLM_HEAD + rules)
