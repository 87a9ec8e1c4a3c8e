"""Kneser-Ney n-gram from text (kaldingram), as a gzipped ARPA file."""

from __future__ import annotations

import gzip
import io
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import redirect_stderr
from pathlib import Path
from typing import TextIO

from kaldingram.train import NgramCounts

from hadpsgd.errors import UserError
from hadpsgd.files import atomic_file
from hadpsgd.lm import arpa
from hadpsgd.lm.vocabulary import Vocabulary


def train(text: Path, vocabulary: Vocabulary, order: int, out: Path) -> None:
    """Train on a text of one sentence a line; words outside the vocabulary become its OOV word.

    Raises:
        UserError: no text, or an empty one.
    """
    counts = NgramCounts(order)
    with tempfile.TemporaryDirectory() as folder, redirect_stderr(io.StringIO()):
        mapped = Path(folder) / "text"
        with mapped.open("w", encoding="utf-8") as stream:
            stream.writelines(" ".join(words) + "\n" for words in vocabulary.map(text))
        if mapped.stat().st_size == 0:
            raise UserError("no words", where=text, fix="Give one sentence a line")
        counts.add_raw_counts_from_file(str(mapped))
        counts.cal_discounting_constants()
        counts.cal_f()
        counts.cal_bow()
        plain = Path(folder) / "arpa"
        with plain.open("w", encoding="utf-8") as stream:
            counts.print_as_arpa(fout=stream)
        write(out, arpa.counts(plain), _closed(plain))
    print(f"language model: {arpa.counts(out)} n-grams by order", file=sys.stderr)


def _closed(path: Path) -> Iterator[arpa.Ngram]:
    """Its n-grams, each context with a back-off: none is left where nothing is left to give."""
    contexts = {ngram.words[:-1] for ngram in arpa.read(path)}
    for ngram in arpa.read(path):
        if ngram.backoff is None and ngram.words in contexts:
            ngram = arpa.Ngram(ngram.words, ngram.log_prob, arpa.IMPOSSIBLE, ngram.line)
        yield ngram


def write(path: Path, counts: list[int], ngrams: Iterable[arpa.Ngram]) -> None:
    """Write a gzipped ARPA file; the same model gives the same bytes."""
    with (
        atomic_file(path) as temporary,
        temporary.open("wb") as plain,
        gzip.GzipFile("", "wb", fileobj=plain, mtime=0, compresslevel=6) as packed,
        io.TextIOWrapper(packed, encoding="utf-8") as stream,
    ):
        _write_text(stream, counts, ngrams)


def _write_text(stream: TextIO, counts: list[int], ngrams: Iterable[arpa.Ngram]) -> None:
    stream.write("\\data\\\n")
    stream.writelines(f"ngram {order}={count}\n" for order, count in enumerate(counts, 1))
    order = 0
    for ngram in ngrams:
        if len(ngram.words) != order:
            order = len(ngram.words)
            stream.write(f"\n\\{order}-grams:\n")
        backoff = "" if ngram.backoff is None else f"\t{ngram.backoff:.7f}"
        stream.write(f"{ngram.log_prob:.7f}\t{' '.join(ngram.words)}{backoff}\n")
    stream.write("\n\\end\\\n")
