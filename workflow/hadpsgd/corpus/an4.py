"""AN4, the CMU census corpus: spelled letters, digits and dates, 948 + 130 utterances.

Public, from CMU (http://www.speech.cs.cmu.edu/databases/an4/), 16 kHz. Layout:
etc/an4_{train,test}.{fileids,transcription}, etc/an4.dic (ARPAbet without stress), wav/ with
RIFF, NIST Sphere (.sph) or headerless big-endian (.raw) files. Utterance ids are
`<speaker>-<file>`, so that alignments of Kaldi recipes on AN4 fit.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from hadpsgd.config import Config
from hadpsgd.config.corpus import An4
from hadpsgd.corpus import audio
from hadpsgd.corpus.datadir import DataDir, Utterance
from hadpsgd.corpus.dictdir import Lexicon, write_dict
from hadpsgd.corpus.layout import Layout
from hadpsgd.corpus.references import write_stm
from hadpsgd.corpus.resample import resample, to_int16
from hadpsgd.corpus.validate import Checks, Summary, validate_or_fail
from hadpsgd.errors import UserError
from hadpsgd.files import file_name
from hadpsgd.parallel import map_in_order
from hadpsgd.progress import tracked

_RAW_RATE = 16000
_TRANSCRIPTION = re.compile(r"(?:<s>)?\s*(.*?)\s*(?:</s>)?\s*\(([^()\s]+)\)\s*$")


@dataclass(frozen=True, kw_only=True)
class _File:
    id: str
    speaker: str
    text: str
    path: Path


def dictionary(config: Config, layout: Layout) -> None:
    """AN4's own pronunciations."""
    write_dict(layout.dict_dir, _dictionary(_root(config) / "etc" / "an4.dic").words)


def data(
    config: Config, name: str, layout: Layout, lexicon: Container[str] | None, processes: int
) -> Summary:
    """Resample a set.

    The last `dev_speakers` of the training speakers, women and men in turn, are the
    development set; neither audio nor text of theirs is trained on.

    Raises:
        UserError: a file of AN4 is missing or does not fit the others.
    """
    rate, files = config.features.sample_rate, _set(config, name)
    _convert(files, layout.audio(name), rate, processes, f"an4 {name}")
    _data_dir(files, name, layout).write(layout.data(name))
    if name == "test":
        write_stm(layout.data(name) / "stm", DataDir.read(layout.data(name)))
    return validate_or_fail(layout.data(name), Checks(sample_rate=rate, lexicon=lexicon))


def text(config: Config, made: Layout, name: str) -> Iterator[str]:
    """The transcripts of a set."""
    del made
    return (file.text for file in _set(config, name))


def _root(config: Config) -> Path:
    assert isinstance(config.corpus, An4)
    root = Path(config.corpus.path)
    if not (root / "etc" / "an4_train.fileids").is_file():
        raise UserError("no AN4 here", where=root, fix="Set corpus.path to the folder with etc/")
    return root


def _set(config: Config, name: str) -> list[_File]:
    assert isinstance(config.corpus, An4)
    root = _root(config)
    if name == "test":
        return _files(root, "test")
    train = _files(root, "train")
    speakers = sorted({f.speaker for f in train})
    held_out = _held_out(speakers, config.corpus.dev_speakers, root)
    return [f for f in train if (f.speaker in held_out) == (name == "dev")]


def _files(root: Path, split: str) -> list[_File]:
    ids = (root / "etc" / f"an4_{split}.fileids").read_text().split()
    path = root / "etc" / f"an4_{split}.transcription"
    lines = [line for line in path.read_text().splitlines() if line.strip()]
    if len(ids) != len(lines):
        raise UserError(f"{len(lines)} transcripts for {len(ids)} files", where=path)
    return list(_pair(ids, lines, root, path))


def _pair(ids: list[str], lines: list[str], root: Path, path: Path) -> Iterator[_File]:
    for number, (file_id, line) in enumerate(zip(ids, lines, strict=True), 1):
        match = _TRANSCRIPTION.fullmatch(line)
        if match is None or match[2] != file_id.rsplit("/", 1)[-1]:
            raise UserError(f"no transcript of {file_id}", where=f"{path}:{number}")
        _, speaker, name = file_id.rsplit("/", 2)
        yield _File(
            id=f"{speaker}-{name}",
            speaker=speaker,
            text=match[1],
            path=_find(root / "wav" / file_id),
        )


def _find(stem: Path) -> Path:
    for suffix in (".wav", ".sph", ".raw"):
        if (path := stem.with_name(stem.name + suffix)).is_file():
            return path
    raise UserError("missing audio file (.wav, .sph or .raw)", where=stem, fix="Copy AN4 again")


def _held_out(speakers: list[str], count: int, root: Path) -> set[str]:
    """Women and men in turn, each from the end of the alphabet."""
    if count >= len(speakers):
        raise UserError(
            f"dev_speakers {count} leaves none of {len(speakers)} to train on", where=root
        )
    women = [s for s in speakers if s.startswith("f")]
    men = [s for s in speakers if not s.startswith("f")]
    chosen: list[str] = []
    while len(chosen) < count:
        for group in (women, men):
            if group and len(chosen) < count:
                chosen.append(group.pop())
    return set(chosen)


def _convert(files: list[_File], folder: Path, rate: int, processes: int, what: str) -> None:
    make = partial(partial, _convert_file, folder=folder, rate=rate)
    for _ in tracked(map_in_order(make, files, processes), files, what=what, unit="files"):
        pass


def _convert_file(file: _File, folder: Path, rate: int) -> None:
    if file.path.suffix == ".raw":
        samples, found = np.fromfile(file.path, dtype=">i2").astype(np.float32), _RAW_RATE
    else:
        with audio.open_audio(str(file.path)) as stream:
            samples, found = audio.read(stream, channel=0), stream.samplerate
    if not len(samples):
        raise UserError("no samples", where=file.path, fix="Copy AN4 again")
    audio.write_wav(
        folder / f"{file_name(file.id)}.wav",
        to_int16(resample(samples, rate=found, new_rate=rate)),
        rate,
    )


def _data_dir(files: list[_File], name: str, layout: Layout) -> DataDir:
    folder = layout.audio(name)
    utterances = [Utterance(id=f.id, speaker=f.speaker, recording=f.id, text=f.text) for f in files]
    return DataDir(
        layout.data(name),
        {u.id: u for u in sorted(utterances, key=lambda u: u.id)},
        {f.id: layout.relative(folder / f"{file_name(f.id)}.wav") for f in files},
        # the first letter of a speaker's name
        {f.speaker: f.speaker[0] for f in files},
    )


def _dictionary(path: Path) -> Lexicon:
    """an4.dic: `WORD  PHONES`, further pronunciations as `WORD(2)`."""
    lexicon = Lexicon()
    for line in path.read_text().splitlines():
        if line.strip():
            word, *phones = line.split()
            lexicon.add(re.sub(r"\(\d+\)$", "", word), tuple(phones))
    return lexicon
