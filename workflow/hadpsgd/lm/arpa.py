"""ARPA files: read from top to bottom and checked; gzipped or not."""

from __future__ import annotations

import gzip
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from hadpsgd.errors import UserError, reason
from hadpsgd.lm.blocks import FIX, Block, Ngram
from hadpsgd.lm.contexts import Contexts
from hadpsgd.progress import tracked
from hadpsgd.texts import is_gzipped, open_bytes

__all__ = ["BOS", "EOS", "IMPOSSIBLE", "UNK", "Arpa", "Ngram"]

BOS, EOS, UNK = "<s>", "</s>", "<unk>"
IMPOSSIBLE = -99.0  # log10 probability of what cannot be
_COUNT = re.compile(r"^ngram\s+(\d+)\s*=\s*(\d+)$")
_SECTION = re.compile(r"^\\(\d+)-grams:$")
_BYTES = 1 << 20
"""Of a block of lines."""


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
    """An ARPA file read from top to bottom: `counts` first, then its n-grams in blocks."""

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        self.path, self._stream, self._line = path, stream, 0
        self.counts = self._read_counts()

    @property
    def order(self) -> int:
        """Highest order of its n-grams."""
        return len(self.counts)

    def fail(self, what: str, line: int | None = None) -> UserError:
        """An error that names file and line."""
        where = self.path if line is None else f"{self.path}:{line}"
        return UserError(what, where=where, fix=FIX)

    def _read_counts(self) -> list[int]:
        counts: list[int] = []
        inside = False
        for number, raw in enumerate(iter(self._stream.readline, b""), 1):
            self._line = number
            line = raw.decode().strip()
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

    def blocks(self) -> Iterator[Block]:
        """Its n-grams, lower orders first.

        Raises:
            UserError: wrong headings or counts, cut short. What is in the lines is not checked.
        """
        order, seen = 1, 0
        for text in _parts(self._stream):
            number = self._line + 1
            self._line += text.count(b"\n")
            if not text.lstrip().startswith(b"\\"):
                block = Block(
                    path=self.path, order=order, highest=self.order, first=number, text=text
                )
                seen += len(block)
                if seen <= self.counts[order - 1]:  # else its end says so
                    yield block
                continue
            line, wanted = text.strip().decode(), self.counts[order - 1]
            if seen != wanted:
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


def _parts(stream: BinaryIO) -> Iterator[bytes]:
    """Whole lines, about a block together; one that begins with a backslash comes alone."""
    while text := stream.read(_BYTES):
        text += stream.readline()
        start, place = 0, text.find(b"\\")
        while place >= 0:
            begin = text.rfind(b"\n", 0, place) + 1
            after = place + 1
            if not text[begin:place].strip():
                after = text.find(b"\n", place) + 1 or len(text)
                if start < begin:
                    yield text[start:begin]
                yield text[begin:after]
                start = after
            place = text.find(b"\\", after)
        if start < len(text):
            yield text[start:]


@contextmanager
def opened(path: Path) -> Iterator[Arpa]:
    """An ARPA file, its head read.

    Raises:
        UserError: missing file, damaged or cut archive, not UTF-8, another format; also while it
            is read.
    """
    try:
        with open_bytes(path) as stream:
            yield Arpa(Path(path), stream)
    except FileNotFoundError:
        raise UserError("no such language model", where=path) from None
    except UnicodeDecodeError:
        raise UserError("not UTF-8 text", where=path) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"a damaged gzip archive ({reason(error)})", where=path) from None


def read(path: Path) -> Iterator[Ngram]:
    """Yield the n-grams of an ARPA file, lower orders first.

    Raises:
        UserError: missing file, damaged or cut archive, wrong counts, NaN, another format.
    """
    with opened(path) as file:
        for block in file.blocks():
            yield from block.ngrams()


def counts(path: Path) -> list[int]:
    """Numbers of n-grams by order, from the head of the file."""
    with opened(path) as file:
        return file.counts


def check(path: Path) -> list[int]:
    """Read an ARPA file to its end and check it whole; returns its counts by order.

    Holds 8 bytes for an n-gram of an order and the one above it, and as much to sort them.

    Raises:
        UserError: wrong counts, NaN, probability above 1, a context that is missing or has no
            back-off weight, an n-gram that is listed twice, no <s> or </s>.
    """
    contexts = Contexts()
    marks = {BOS, EOS}
    with opened(path) as file:
        what = "language model checked"
        blocks = tracked(file.blocks(), sum(file.counts), what=what, unit="n-grams", weight=len)
        for block in blocks:
            columns = block.columns()
            if block.order == 1:
                marks -= {word.decode() for word in columns.words[0]}
            contexts.add(block, columns)
    contexts.end()
    if contexts.twice is not None:
        raise _second(path, contexts, contexts.twice)
    if marks:
        raise UserError(f"no {sorted(marks)[0]} among its 1-grams", where=path)
    return file.counts


def _second(path: Path, contexts: Contexts, order: int) -> UserError:
    """An error that names the line where an n-gram of an order is listed again."""
    seen = 0
    with opened(path) as file:
        for block in (block for block in file.blocks() if block.order == order):
            rows = contexts.again(block.columns())
            if seen + len(rows) > 1:
                return block.fail(f"this {order}-gram is listed twice", block.line(rows[1 - seen]))
            seen += len(rows)
        return file.fail(f"a {order}-gram is listed twice")
