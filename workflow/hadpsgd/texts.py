"""Texts of one sentence a line, gzipped or not, whatever the file is called."""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from hadpsgd.errors import UserError, reason

_GZIP = b"\x1f\x8b"
_WORD = re.compile(r"[^ \t\n\r\v\f]+")
_OTHER_SPACE = re.compile(r"[^\S \t\n\r\v\f]")  # where str.split() splits, too
_HEAD = 1000
"""Lines in which an ARPA file says what it is: comments may come first."""


def is_gzipped(path: Path) -> bool:
    """Whether a file is a gzip archive, by its first bytes."""
    with Path(path).open("rb") as stream:
        return stream.read(len(_GZIP)) == _GZIP


def open_text(path: Path) -> TextIO:
    """Open a text file, gzipped or not, as UTF-8; a byte order mark is passed over.

    Raises:
        OSError: it cannot be opened. Reading may raise UnicodeDecodeError, EOFError, zlib.error.
    """
    if is_gzipped(path):
        return gzip.open(path, "rt", encoding="utf-8-sig")
    return Path(path).open(encoding="utf-8-sig")


def open_bytes(path: Path) -> BinaryIO:
    """Open a text file, gzipped or not, as bytes; a byte order mark is passed over.

    Raises:
        OSError: it cannot be opened or read. Reading may raise EOFError, zlib.error.
    """
    stream = cast(BinaryIO, (gzip.open if is_gzipped(path) else open)(path, "rb"))
    if stream.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
        stream.seek(0)
    return stream


def is_arpa(path: Path) -> bool:
    r"""Whether a file is an ARPA language model, by its content: a line \data\ near the top.

    Raises:
        UserError: it cannot be read, or is no text.
    """
    return any(line.strip() == "\\data\\" for _, line in islice(_lines(path), _HEAD))


def words_of(line: str) -> list[str]:
    """The words of a line, as Kaldi's, KenLM's and NIST's programs see them: white space of ASCII
    stands between them, and any other (a no-break space, U+00A0) is part of a word."""
    return _WORD.findall(line) if _OTHER_SPACE.search(line) else line.split()


def sentences(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, words) of a text; empty lines are left out.

    Raises:
        UserError: it cannot be read, is not UTF-8, or is a language model instead of a text.
    """
    for number, line in _lines(path):
        words = words_of(line)
        if words == ["\\data\\"]:
            raise UserError(
                "an ARPA language model, not a text",
                where=f"{path}:{number}",
                fix="Give it as lm.arpa, or as one of lm.sources",
            )
        if words:
            yield number, words


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with open_text(path) as stream:
            yield from enumerate(stream, 1)
    except FileNotFoundError:
        raise UserError("no such text", where=path) from None
    except UnicodeDecodeError:
        raise UserError("not UTF-8 text", where=path, fix="Convert it: iconv -t UTF-8") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"a damaged gzip archive ({reason(error)})", where=path) from None
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", where=path) from None
