"""ARPA files: read line by line, checked; gzipped or not. Nothing is held but counts and hashes."""

from __future__ import annotations

import gzip
import math
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

from hadpsgd.errors import UserError
from hadpsgd.texts import is_gzipped, open_text

BOS, EOS, UNK = "<s>", "</s>", "<unk>"
IMPOSSIBLE = -99.0  # log10 probability of what cannot be
_COUNT = re.compile(r"^ngram\s+(\d+)\s*=\s*(\d+)$")
_SECTION = re.compile(r"^\\(\d+)-grams:$")
_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Ngram:
    """One line: words, log10 probability, log10 back-off (None where the line has none)."""

    words: tuple[str, ...]
    log_prob: float
    backoff: float | None
    line: int


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """The file itself, or an unpacked copy of a gzipped one."""
    path = Path(path)
    if not is_gzipped(path):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.stem
        with gzip.open(path, "rb") as source, copy.open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
        yield copy


class Arpa:
    """An ARPA file read from top to bottom: `counts` first, then n-grams by iteration."""

    def __init__(self, path: Path, stream: TextIO) -> None:
        self.path, self._lines = path, enumerate(stream, 1)
        self.counts = self._read_counts()

    @property
    def order(self) -> int:
        """Highest order of its n-grams."""
        return len(self.counts)

    def fail(self, what: str, line: int | None = None) -> UserError:
        """An error that names file and line."""
        where = self.path if line is None else f"{self.path}:{line}"
        return UserError(what, where=where, fix="Make the language model again")

    def _read_counts(self) -> list[int]:
        counts: list[int] = []
        inside = False
        for number, line in self._lines:
            line = line.strip()
            if line == "\\data\\":
                inside = True
            elif inside and (match := _COUNT.match(line)):
                order, count = map(int, match.groups())
                if order != len(counts) + 1:
                    raise self.fail(f"'{line}' is out of order", number)
                counts.append(count)
            elif inside and _SECTION.match(line):
                self._section(line, 1, number)
                if not counts:
                    raise self.fail("no line 'ngram 1=...' in \\data\\", number)
                return counts
            elif inside and line:
                raise self.fail(f"'{line}' is not 'ngram N=COUNT'", number)
        raise self.fail("no ARPA language model: \\data\\ and \\1-grams: are missing")

    def _section(self, line: str, order: int, number: int) -> None:
        match = _SECTION.match(line)
        if not match or int(match[1]) != order:
            raise self.fail(f"'{line}' where \\{order}-grams: belongs", number)

    def __iter__(self) -> Iterator[Ngram]:
        order, seen = 1, 0
        for number, line in self._lines:
            line = line.strip()
            if not line:
                continue
            if not line.startswith("\\"):
                seen += 1
                yield self._ngram(line, order, number)
                continue
            if seen != self.counts[order - 1]:
                wanted = self.counts[order - 1]
                raise self.fail(f"{seen} {order}-grams, \\data\\ says {wanted}", number)
            if line == "\\end\\":
                if order < self.order:
                    raise self.fail(f"\\end\\ before \\{order + 1}-grams:", number)
                return
            order, seen = order + 1, 0
            if order > self.order:
                raise self.fail(f"'{line}': \\data\\ counts no {order}-grams", number)
            self._section(line, order, number)
        raise self.fail("cut short: no \\end\\")

    def _ngram(self, line: str, order: int, number: int) -> Ngram:
        fields = line.split()
        if not order < len(fields) <= order + 2 or (len(fields) == order + 2 == self.order + 2):
            raise self.fail(f"'{line}' is not a probability, {order} words, a back-off", number)
        try:
            log_prob = float(fields[0])
            backoff = float(fields[order + 1]) if len(fields) == order + 2 else None
        except ValueError:
            raise self.fail(f"'{line}': not a number", number) from None
        if math.isnan(log_prob) or (backoff is not None and math.isnan(backoff)):
            raise self.fail(f"'{line}': not a number (NaN)", number)
        if log_prob > 0.0:
            raise self.fail(f"'{line}': a probability above 1", number)
        return Ngram(
            words=tuple(fields[1 : order + 1]), log_prob=log_prob, backoff=backoff, line=number
        )


def read(path: Path) -> Iterator[Ngram]:
    """Yield the n-grams of an ARPA file, lower orders first.

    Raises:
        UserError: missing file, damaged or cut archive, wrong counts, NaN, another format.
    """
    try:
        with open_text(path) as stream:
            yield from Arpa(Path(path), stream)
    except FileNotFoundError:
        raise UserError("no such language model", where=path) from None
    except UnicodeDecodeError:
        raise UserError("not UTF-8 text", where=path) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"a damaged gzip archive ({error})", where=path) from None


def counts(path: Path) -> list[int]:
    """Numbers of n-grams by order, from the head of the file."""
    try:
        with open_text(path) as stream:
            return Arpa(Path(path), stream).counts
    except FileNotFoundError:
        raise UserError("no such language model", where=path) from None
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise UserError(f"not an ARPA file ({error})", where=path) from None


class Contexts:
    """Tells whether the first words of every n-gram are an n-gram with a back-off weight.

    Holds a 64-bit hash for each n-gram of the order below, not the n-grams.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._order = 0
        self._with: list[int] = []
        self._without: list[int] = []
        self._known: dict[bool, np.ndarray] = {}
        self._asked: list[int] = []
        self._lines: list[int] = []

    def add(self, ngram: Ngram) -> None:
        """The next n-gram of the file.

        Raises:
            UserError: an n-gram's context is missing or has no back-off weight.
        """
        if len(ngram.words) != self._order:
            self.finish()
            self._known = {
                True: np.unique(np.array(self._with, np.int64)),
                False: np.unique(np.array(self._without, np.int64)),
            }
            self._order, self._with, self._without = len(ngram.words), [], []
        (self._without if ngram.backoff is None else self._with).append(hash(ngram.words))
        if self._order > 1:
            self._asked.append(hash(ngram.words[:-1]))
            self._lines.append(ngram.line)
            if len(self._asked) >= _CHUNK:
                self.finish()

    def finish(self) -> None:
        """Check what has been collected."""
        if not self._asked:
            return
        asked = np.array(self._asked, np.int64)
        bad = np.flatnonzero(~np.isin(asked, self._known[True]))
        if len(bad):
            line = self._lines[bad[0]]
            lacking = np.isin(asked[bad[0]], self._known[False])
            what = "has no back-off weight" if lacking else "is not listed"
            raise UserError(
                f"the context of this {self._order}-gram {what}",
                where=f"{self.path}:{line}",
                fix="Make the language model again",
            )
        self._asked, self._lines = [], []


def check(path: Path) -> list[int]:
    """Read an ARPA file to its end and check it whole; returns its counts by order.

    Raises:
        UserError: wrong counts, NaN, probability above 1, a context that is missing or has no
            back-off weight, no <s> or </s>.
    """
    contexts = Contexts(path)
    marks = {BOS, EOS}
    for ngram in read(path):
        if len(ngram.words) == 1:
            marks.discard(ngram.words[0])
        contexts.add(ngram)
    contexts.finish()
    if marks:
        raise UserError(f"no {sorted(marks)[0]} among its 1-grams", where=path)
    return counts(path)
