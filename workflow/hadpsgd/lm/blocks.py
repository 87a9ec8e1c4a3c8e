"""N-grams of an ARPA file as columns: a megabyte of its lines at once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from hadpsgd.errors import UserError

FIX = "Make the language model again"
_BLANK = np.zeros(256, bool)
_BLANK[list(b" \t\n\r\v\f")] = True  # where bytes.split() splits


@dataclass(frozen=True, kw_only=True)
class Ngram:
    """One line: words, log10 probability, log10 back-off (None where the line has none)."""

    words: tuple[str, ...]
    log_prob: float
    backoff: float | None
    line: int


@dataclass(frozen=True)
class Columns:
    """What the lines of a block say.

    Args:
        words: by place in the n-gram, a list of all lines' words there, in UTF-8.
        log_prob: float64 [n-grams], log10.
        backoff: float64 [n-grams], log10; NaN where the line has none.
    """

    words: list[list[bytes]]
    log_prob: NDArray[np.float64]
    backoff: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Block:
    """Whole lines of the n-grams of one order, and empty ones.

    Args:
        path: the file.
        order: words of each n-gram.
        highest: order of the model, whose n-grams have no back-off.
        first: number of the first line.
        text: the lines.
    """

    path: Path
    order: int
    highest: int
    first: int
    text: bytes

    def __len__(self) -> int:
        """N-grams."""
        return len(self._lines)

    def line(self, row: int) -> int:
        """Number of the line of an n-gram."""
        return self.first + int(self._lines[row])

    def fail(self, what: str, line: int) -> UserError:
        """An error that names file and line."""
        return UserError(what, where=f"{self.path}:{line}", fix=FIX)

    @cached_property
    def _fields(self) -> NDArray[np.int64]:
        """int64 [lines]: how many fields each has."""
        data = np.frombuffer(self.text, np.uint8)
        blank = _BLANK[data]
        begins = ~blank
        begins[1:] &= blank[:-1]
        ends = np.flatnonzero(data == ord("\n"))
        if not self.text.endswith(b"\n"):
            ends = np.append(ends, len(data))
        return np.diff(np.searchsorted(np.flatnonzero(begins), ends), prepend=0)

    @cached_property
    def _lines(self) -> NDArray[np.int64]:
        """int64 [n-grams]: places of those that are not empty."""
        return np.flatnonzero(self._fields)

    def ngrams(self) -> Iterator[Ngram]:
        """One by one.

        Raises:
            UserError: a line that is no n-gram, NaN, a probability above 1, an infinite back-off.
            UnicodeDecodeError: not UTF-8.
        """
        for number, line in enumerate(self.text.split(b"\n"), self.first):
            if fields := line.split():
                yield self._ngram(line, fields, number)

    def columns(self) -> Columns:
        """All at once.

        Raises:
            UserError: as `ngrams` does, of the first line that is wrong.
        """
        order, fields = self.order, self._fields[self._lines]
        with_backoff = fields == order + 2
        if not (with_backoff & (order < self.highest) | (fields == order + 1)).all():
            self._tell()
        tokens = np.array(self.text.split(), object)
        begins = np.cumsum(fields) - fields
        backoff = np.full(len(self), np.nan)
        try:
            log_prob = _numbers(tokens[begins])
            backoff[with_backoff] = _numbers(tokens[begins[with_backoff] + order + 1])
        except ValueError:
            self._tell()
        # NaN is not <= 0, and not less than infinity either
        if not ((log_prob <= 0.0).all() and (backoff[with_backoff] < np.inf).all()):
            self._tell()
        words = [tokens[begins + place].tolist() for place in range(1, order + 1)]
        return Columns(words, log_prob, backoff)

    def _tell(self) -> NoReturn:
        for _ in self.ngrams():
            pass
        raise AssertionError("no line is wrong")

    def _ngram(self, line: bytes, fields: list[bytes], number: int) -> Ngram:
        order = self.order
        text = line.strip().decode()
        if not order < len(fields) <= order + 2 or len(fields) == order + 2 == self.highest + 2:
            what = f"'{text}' is not a probability, {order} words, a back-off"
            raise self.fail(what, number)
        try:
            log_prob = float(fields[0])
            backoff = float(fields[order + 1]) if len(fields) == order + 2 else None
        except ValueError:
            raise self.fail(f"'{text}': not a number", number) from None
        if math.isnan(log_prob) or (backoff is not None and math.isnan(backoff)):
            raise self.fail(f"'{text}': not a number (NaN)", number)
        if log_prob > 0.0:
            raise self.fail(f"'{text}': a probability above 1", number)
        if backoff == math.inf:
            raise self.fail(f"'{text}': an infinite back-off", number)
        words = tuple(word.decode() for word in fields[1 : order + 1])
        return Ngram(words=words, log_prob=log_prob, backoff=backoff, line=number)


def _numbers(tokens: NDArray[np.object_]) -> NDArray[np.float64]:
    return np.fromiter(map(float, tokens.tolist()), np.float64, len(tokens))
