"""A table of recordings to Kaldi data directories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hadpsgd.corpus.datadir import DataDir, Utterance
from hadpsgd.corpus.dictdir import RESERVED
from hadpsgd.corpus.tables import Report
from hadpsgd.errors import UserError
from hadpsgd.files import write_text
from hadpsgd.progress import tracked
from hadpsgd.setup.plain import Plain, changes, plain
from hadpsgd.setup.prepared import LONG_SECONDS, Corpus, Speech
from hadpsgd.setup.recordings import Recording, converted, look_at, rate_for
from hadpsgd.setup.split import SETS, Piece, split
from hadpsgd.setup.table import read_rows
from hadpsgd.texts import sentences


def read(table: Path, report: Report, threads: int) -> list[Recording]:
    """The recordings of a table; faults go to `report` as `read_rows` and `look_at` say."""
    return look_at(table, read_rows(table, report), report, threads)


def write(
    recordings: Sequence[Recording], *, lm_text: Path | None, folder: Path, named: Path
) -> Corpus:
    """Write data directories, copies at the common rate, and the text in plain words.

    Args:
        recordings: without faults.
        lm_text: more text for the language model.
        folder: to write into.
        named: the name that this folder will have.

    Raises:
        UserError: fewer than three recordings, damaged audio, a text that cannot be read.
    """
    rate = rate_for(recordings)
    pieces = {r.id: Piece(r.speaker, r.seconds) for r in recordings}
    if recordings[0].set:
        sets, by_speaker = {r.id: r.set for r in recordings}, True
    else:
        try:
            sets, by_speaker = split(pieces)
        except ValueError as error:
            raise UserError(str(error), fix="Record more") from None
    audio = folder / "audio"
    files = {}
    for recording in tracked(recordings, recordings, what="copied", unit="recordings"):
        file = converted(recording, audio, rate)
        at_last = named.absolute() / file.relative_to(folder) if file.parent == audio else file
        files[recording.id] = str(at_last)
    made = {}
    for name in SETS:
        of_set = sorted((r for r in recordings if sets[r.id] == name), key=lambda r: r.id)
        _data_dir(of_set, files).write(folder / name)
        made[name] = Speech(
            data=named / name,
            sentences=[" ".join(r.said.words) for r in of_set],
            speakers={r.speaker for r in of_set},
            seconds=sum(r.seconds for r in of_set),
            long=[str(r.file) for r in of_set if r.seconds > LONG_SECONDS],
        )
    read = [plain(" ".join(line)) for _, line in sentences(lm_text)] if lm_text else []
    lines = _lines(lm_text, read) if lm_text else []
    if lines:
        write_text(folder / "lm.txt", "".join(f"{line}\n" for line in lines))
    return Corpus(
        sets=made,
        by_speaker=by_speaker,
        sample_rate=rate,
        lm_text=named / "lm.txt" if lines else None,
        lm_sentences=lines,
        changes=[*changes([*(r.said for r in recordings), *read])],
    )


def _data_dir(recordings: Sequence[Recording], files: dict[str, str]) -> DataDir:
    utterances = {
        r.id: Utterance(id=r.id, speaker=r.speaker, recording=r.id, text=" ".join(r.said.words))
        for r in recordings
    }
    return DataDir(Path(), utterances, {name: files[name] for name in utterances})


def _lines(path: Path, texts: Sequence[Plain]) -> list[str]:
    """The sentences of a text as transcripts are taken, without marks of their ends (`<s>`).

    Raises:
        UserError: it has no word.
    """
    found = (" ".join(w for w in text.words if w not in RESERVED) for text in texts)
    lines = [line for line in found if line]
    if not lines:
        raise UserError("no word in this text", where=path)
    return lines
