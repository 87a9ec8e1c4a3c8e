"""Files of n-best lists: one line of JSON an utterance, after one that says of which lattices."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from hadpsgd.decoding.nbest_list import NbestList
from hadpsgd.errors import UserError, reason
from hadpsgd.files import atomic_file, sha256
from hadpsgd.lm.neural.events import Events

_LATTICES = "lattices"
_AGAIN = "`hadpsgd neural-lists` makes it"


def partial_of(folder: Path) -> frozenset[str]:
    """Utterances of a decoding folder that ended within a sentence."""
    path = folder / "decode.json"
    try:
        return frozenset(json.loads(path.read_text(encoding="utf-8")).get("partial", ()))
    except FileNotFoundError:
        return frozenset()
    except (ValueError, AttributeError, TypeError) as error:
        raise UserError(f"damaged ({error})", where=path, fix="Decode again") from None


def checksum_of(decode: Path) -> str:
    """Of all in a decoding folder that decides its lists: lattices, the words' numbers, and which
    utterances ended within a sentence. Its files are read as they are, not unpacked."""
    files = [*sorted(decode.glob("lat.*.gz")), decode / "words.txt"]
    content = [[path.name, sha256(path)] for path in files if path.is_file()]
    made = json.dumps([content, sorted(partial_of(decode))])
    return hashlib.sha256(made.encode()).hexdigest()


def write(path: Path, lists: Iterable[tuple[str, NbestList]], *, lattices: str) -> tuple[int, int]:
    """Write lists of the lattices with that checksum; how many, and how many word sequences they
    have."""
    utterances = sequences = 0
    with (
        atomic_file(path) as temporary,
        temporary.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, compresslevel=1, mtime=0) as stream,
    ):
        stream.write(json.dumps({_LATTICES: lattices}).encode() + b"\n")
        for utterance, found in lists:
            stream.write(json.dumps([utterance, *_row(found)], separators=(",", ":")).encode())
            stream.write(b"\n")
            utterances += 1
            sequences += len(found.words)
    return utterances, sequences


def read_of(path: Path, *, decode: Path) -> Iterator[tuple[str, NbestList]]:
    """Yield (utterance, list) of a file that was made of this decoding folder.

    Raises:
        UserError: it was made of another one, is missing or damaged.
    """
    lattices, lists = read(path)
    if lattices != checksum_of(decode):
        raise UserError(
            f"n-best lists that do not go with the lattices of {decode}: they were made of others",
            where=path,
            fix=f"`hadpsgd neural-lists --decode {decode}` makes them",
        )
    return lists


def read(path: Path) -> tuple[str, Iterator[tuple[str, NbestList]]]:
    """The checksum of the lattices, and (utterance, list) one after another, that `write` wrote.

    Raises:
        UserError: it is missing or damaged, at once or when a list is asked for.
    """
    lines = _lines(path)
    first = next(lines, None)
    if not isinstance(first, dict) or not isinstance(first.get(_LATTICES), str):
        what = "its first line does not say of which lattices it is"
        raise UserError(what, where=path, fix=_AGAIN)
    return first[_LATTICES], _lists(path, lines)


def _lines(path: Path) -> Iterator[object]:
    number = 0
    try:
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            for line in stream:
                number += 1
                yield json.loads(line)
    except FileNotFoundError:
        raise UserError("missing", where=path, fix=_AGAIN) from None
    except (OSError, EOFError, zlib.error, ValueError) as error:
        what = f"damaged ({reason(error)})"
        raise UserError(what, where=f"{path}:{max(number, 1)}", fix=_AGAIN) from None


def _lists(path: Path, lines: Iterator[object]) -> Iterator[tuple[str, NbestList]]:
    for number, line in enumerate(lines, 2):
        try:
            found = _list(line)
        except (ValueError, TypeError, LookupError) as error:
            what = f"damaged ({error})"
            raise UserError(what, where=f"{path}:{number}", fix=_AGAIN) from None
        yield found


def _row(found: NbestList) -> list[object]:
    events = found.events
    columns = (found.graph, found.acoustic, events.ngram, events.neural)
    return [found.words, *(column.tolist() for column in columns)]


def _list(row: object) -> tuple[str, NbestList]:
    if not isinstance(row, list):
        raise TypeError("no utterance with its list")
    utterance, words, *columns = row
    if not isinstance(utterance, str) or not isinstance(words, list):
        raise TypeError("no utterance with its list")
    graph, acoustic, ngram, neural = (np.array(column, np.float64) for column in columns)
    said = tuple(tuple(map(int, each)) for each in words)
    first = np.cumsum([0, *(len(each) + 1 for each in said)])
    sizes = {len(graph), len(acoustic), len(said)}, {len(ngram), len(neural), int(first[-1])}
    if any(len(size) > 1 for size in sizes):
        raise ValueError("numbers of another list")
    if not all(np.isfinite(column).all() for column in (graph, acoustic, ngram, neural)):
        raise ValueError("a number that is not finite")
    known = np.ones(len(ngram), bool)
    return utterance, NbestList(said, graph, acoustic, Events(ngram, neural, known, first))
