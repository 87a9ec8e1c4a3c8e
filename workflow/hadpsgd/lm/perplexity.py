"""Perplexity of a text under an ARPA model, by KenLM."""

from __future__ import annotations

import gzip
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import kenlm

from hadpsgd.errors import UserError
from hadpsgd.lm.quiet import quiet


@dataclass(frozen=True)
class Score:
    """Log10 probability of a text; words unknown to the model are counted and left out."""

    log10: float
    words: int
    sentences: int
    oov: int

    @property
    def perplexity(self) -> float:
        """Per word, sentence ends included."""
        events = self.words - self.oov + self.sentences
        return 10.0 ** (-self.log10 / events) if events else float("nan")


@contextmanager
def plain(path: Path) -> Iterator[Path]:
    """The file itself, or an unpacked copy of a gzipped one."""
    path = Path(path)
    if path.suffix != ".gz":
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.stem
        with gzip.open(path, "rb") as source, copy.open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
        yield copy


def load(path: Path) -> kenlm.Model:
    """Load a model into KenLM.

    Raises:
        UserError: KenLM refuses it.
    """
    with plain(path) as file, quiet():
        config = kenlm.Config()
        config.show_progress = False
        try:
            return kenlm.Model(str(file), config)
        except (OSError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"KenLM refuses it: {reason}", where=path) from None


def score(model: kenlm.Model, sentences: Iterable[list[str]]) -> Score:
    """Score sentences, given as words."""
    log10, words, count, oov = 0.0, 0, 0, 0
    for sentence in sentences:
        count += 1
        words += len(sentence)
        for value, _order, unknown in model.full_scores(" ".join(sentence)):
            oov += unknown
            log10 += 0.0 if unknown else value
    return Score(log10, words, count, oov)
