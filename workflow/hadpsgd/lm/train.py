"""Kneser-Ney n-gram from text (our own or KenLM's lmplz), as a gzipped ARPA file."""

from __future__ import annotations

import gzip
import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, TextIO

import numpy as np
import psutil

from hadpsgd.distinct import changes, distinct
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_file
from hadpsgd.lm import arpa
from hadpsgd.lm.contexts import Hasher, among
from hadpsgd.lm.kneser_ney import ONE, Text, each_order, estimate
from hadpsgd.lm.vocabulary import Vocabulary
from hadpsgd.lm.whole import ngrams
from hadpsgd.progress import tracked

Tool = Literal["kaldingram", "lmplz"]
BYTES_A_WORD, BYTES_A_WORD_AND_ORDER = 40, 25
"""Of memory for our own training: of order 4 it took 125 a word (docs/benchmarks/lm-scale.md)."""


def train(
    text: Path,
    vocabulary: Vocabulary,
    order: int,
    out: Path,
    tool: Tool = "kaldingram",
    memory: int | None = None,
    cutoffs: Sequence[int] = (0,),
    discounts: int = ONE,
) -> int:
    """Train on a text of one sentence a line; words outside the vocabulary become its OOV word.

    `memory`: bytes that training may take, by default those that are free. `cutoffs`: n-grams that
    occur so often or less often are left out, by order (`lm.cutoffs`). `discounts`: ONE or THREE an
    order, of our own training.

    Returns the order of the model: `order`, or less where no sentence is so long (with its <s> and
    </s>) or cut-offs leave no n-gram, which one line says.

    Raises:
        UserError: no text, or an empty one; it would take more memory than there is; lmplz is asked
            for and missing, or fails.
    """
    free = psutil.virtual_memory().available
    memory = free if memory is None else min(memory, free)
    sentences = vocabulary.map(text)
    if tool == "kaldingram":
        words = Text.of(sentences)
        order = _supported(text, words.longest, order)
        _refuse_too_large(text, len(words.tokens), order, memory)
        model = estimate(words, order, cutoffs, discounts)
        write(out, [len(o.keys) for o in model.orders], ngrams(model))
    else:
        with tempfile.TemporaryDirectory() as folder:
            mapped, plain, longest = Path(folder) / "text", Path(folder) / "arpa", 2
            with mapped.open("w", encoding="utf-8") as stream:
                for sentence in sentences:
                    stream.write(" ".join(sentence) + "\n")
                    longest = max(longest, len(sentence) + 2)
            order = _supported(text, longest, order)
            _lmplz(mapped, order, plain, memory, each_order(cutoffs, order))
            write(out, arpa.counts(plain), closed(plain))
    counts = arpa.counts(out)
    print(f"language model: {counts} n-grams by order", file=sys.stderr)
    left = sum(count > 0 for count in counts)
    if left < order:
        what = f"lm.cutoffs {list(cutoffs)} leave no {left + 1}-gram of {text}"
        print(f"order {left}, not {order}: {what}", file=sys.stderr)
    return left


def _supported(text: Path, longest: int, order: int) -> int:
    """The order that a text with such a longest sentence, <s> and </s> counted, gives."""
    if longest <= 2:
        raise UserError("no words", where=text, fix="Give one sentence a line")
    if longest >= order:
        return order
    what = f"the longest sentence of {text}, with <s> and </s>, has {longest} words"
    print(f"order {longest}, not {order}: {what}", file=sys.stderr)
    return longest


def _refuse_too_large(text: Path, words: int, order: int, memory: int) -> None:
    needed = words * (BYTES_A_WORD + BYTES_A_WORD_AND_ORDER * order)
    if needed > memory:
        raise UserError(
            f"a model of order {order} of its {words:,} words takes {needed / 1e9:.2g} GB of"
            f" memory, {memory / 1e9:.2g} GB are there",
            where=text,
            fix="Give the job more memory, take a smaller lm.order, or set lm.tool: lmplz,"
            " which sorts on disk",
        )


def _lmplz(text: Path, order: int, out: Path, memory: int, cutoffs: list[int]) -> None:
    """Sorts in four fifths of the memory and in files beside `out`."""
    program = shutil.which("lmplz")
    if program is None:
        raise UserError(
            "lm.tool: lmplz is not in PATH", fix="Install KenLM's programs, or use kaldingram"
        )
    command = [program, "-o", str(order), "--discount_fallback", "--text", str(text)]
    command += ["--arpa", str(out), "-S", f"{memory * 4 // 5 // 2**20}M", "-T", f"{out.parent}/"]
    if any(cutoffs):
        command += ["--prune", *map(str, cutoffs)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        said = result.stderr.strip().splitlines()
        raise UserError(f"lmplz failed: {said[-1] if said else result.returncode}", where=text)


def closed(path: Path) -> Iterator[arpa.Ngram]:
    """Its n-grams, each context with a back-off: none is left where nothing is left to give.

    Holds 8 bytes a context.
    """
    hasher, parts = Hasher(), []
    with arpa.opened(path) as file:
        for block in file.blocks():
            hashes = hasher(block.columns().words[:-1])
            parts.append(hashes[changes(hashes)])
    contexts = distinct(np.concatenate(parts))
    with arpa.opened(path) as file:
        for block in file.blocks():
            columns = block.columns()
            open_ = np.isnan(columns.backoff) & among(hasher(columns.words), contexts)
            for ngram, impossible in zip(block.ngrams(), open_.tolist(), strict=True):
                yield replace(ngram, backoff=arpa.IMPOSSIBLE) if impossible else ngram


def write(path: Path, counts: list[int], ngrams: Iterable[arpa.Ngram]) -> None:
    """Write a gzipped ARPA file; the same model gives the same bytes.

    Orders that pruning emptied are left out, and back-offs of the longest n-grams that are left.
    """
    with (
        atomic_file(path) as temporary,
        temporary.open("wb") as plain,
        gzip.GzipFile("", "wb", fileobj=plain, mtime=0, compresslevel=6) as packed,
        io.TextIOWrapper(packed, encoding="utf-8") as stream,
    ):
        _write_text(stream, counts, ngrams)


def _write_text(stream: TextIO, counts: list[int], ngrams: Iterable[arpa.Ngram]) -> None:
    longest = sum(count > 0 for count in counts)
    stream.write("\\data\\\n")
    stream.writelines(f"ngram {order}={counts[order - 1]}\n" for order in range(1, longest + 1))
    order = 0
    for ngram in tracked(ngrams, sum(counts), what="language model written", unit="n-grams"):
        if len(ngram.words) != order:
            order = len(ngram.words)
            stream.write(f"\n\\{order}-grams:\n")
        open_ = ngram.backoff is not None and order < longest
        backoff = f"\t{ngram.backoff:.7f}" if open_ else ""
        stream.write(f"{ngram.log_prob:.7f}\t{' '.join(ngram.words)}{backoff}\n")
    stream.write("\n\\end\\\n")
