"""Which of the LDC's files a part of the corpus is made of; what is missing the stage tells."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from hadpsgd.config.ldc import Ldc
from hadpsgd.corpus.ldc import names
from hadpsgd.corpus.ldc.folders import every, recordings
from hadpsgd.errors import UserError


def of_set(corpus: Ldc, name: str) -> Iterator[Path]:
    """Transcripts and recordings of a set."""
    if name not in corpus.tests:
        yield from texts(corpus, name)
        with suppress(UserError):
            yield from recordings([Path(corpus.switchboard.audio)], names.SWITCHBOARD).values()
            if corpus.fisher and name == "train":
                yield from recordings(map(Path, corpus.fisher.audio), names.FISHER).values()
        return
    audio, transcripts = Path(corpus.eval2000.audio), Path(corpus.eval2000.transcripts)
    for folder, file in ((audio, names.PEM), (transcripts, names.STM), (transcripts, names.GLM)):
        yield from _files(folder, file)
    with suppress(UserError):
        yield from recordings([audio], names.TESTS[name] + r"\d+").values()


def dictionary(corpus: Ldc) -> Iterator[Path]:
    """Mississippi State's dictionary."""
    yield from _files(Path(corpus.switchboard.transcripts), names.DICTIONARY)


def texts(corpus: Ldc, name: str) -> Iterator[Path]:
    """Transcripts of train or dev, and the dictionary, which tells what is an acronym."""
    yield from dictionary(corpus)
    yield from _files(Path(corpus.switchboard.transcripts), names.TRANSCRIPTS)
    for folder in corpus.fisher.transcripts if corpus.fisher and name == "train" else ():
        yield from _files(Path(folder), names.FISHER_TRANSCRIPTS)


def _files(folder: Path, pattern: str) -> Iterator[Path]:
    with suppress(UserError):
        yield from every(folder, pattern)
