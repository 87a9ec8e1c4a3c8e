"""Kaldi's text tables: one line an entry, `<key> <rest>`, sorted by key.

A fault is a `UserError`; where it goes is the caller's choice: `raise_fault` stops at the
first, `list.append` collects them all.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from hadpsgd.errors import UserError
from hadpsgd.files import atomic_file, read_whole

Report = Callable[[UserError], None]

# what Python takes for white space and Kaldi for a part of a word
_STRANGE_SPACE = re.compile(r"[^\S \t\r\n]")
SORT_FIX = "Sort it as Kaldi does: LC_ALL=C sort"


def raise_fault(fault: UserError) -> None:
    """Stop at the first fault."""
    raise fault


def read_table(path: Path, report: Report = raise_fault, *, empty: str = "") -> dict[str, str]:
    """Read a table: key to the rest of its line (inner spaces kept, outer ones stripped).

    Faults reported: not UTF-8, CRLF line ends, white space that is no space, an empty line, a key
    twice, keys not in C order; and a key with nothing after it when `empty` says how to call
    that. The first of two equal keys wins. Faults of encoding and order are reported once a
    file, with their first line.

    Raises:
        UserError: there is no such file.
    """
    try:
        raw = read_whole(path)
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", where=path) from None
    if b"\r" in raw:
        line = raw[: raw.index(b"\r")].count(b"\n") + 1
        report(UserError("CRLF line ends", where=f"{path}:{line}", fix="Convert it: dos2unix"))
    if raw.startswith(codecs.BOM_UTF8):
        fix = "Save it without: sed -i '1s/^\\xef\\xbb\\xbf//'"
        report(UserError("a byte order mark before the first word", where=f"{path}:1", fix=fix))
        raw = raw.removeprefix(codecs.BOM_UTF8)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        report(UserError("not UTF-8", where=f"{path}:{line}", fix="Convert it: iconv -t UTF-8"))
        text = raw.decode("utf-8", errors="replace")
    if strange := _STRANGE_SPACE.search(text):
        line = text.count("\n", 0, strange.start()) + 1
        what = f"white space U+{ord(strange[0]):04X}"
        report(UserError(what, where=f"{path}:{line}", fix="Use spaces between words"))
    table: dict[str, str] = {}
    last, sorted_so_far = "", True
    # not splitlines(): it also splits at characters that may stand inside a line
    for number, content in enumerate(text.removesuffix("\n").split("\n"), 1):
        if not raw:
            break
        where = f"{path}:{number}"
        key, *rest = content.split(maxsplit=1) or [""]
        if not key:
            report(UserError("empty line", where=where, fix="Remove it"))
            continue
        value = rest[0].rstrip() if rest else ""
        if not value and empty:
            report(UserError(f"{empty} '{key}'", where=where, fix="Complete or remove it"))
        if key in table:
            report(UserError(f"duplicate id '{key}'", where=where, fix="Ids must be unique"))
            continue
        if key < last and sorted_so_far:  # code point order is UTF-8 byte order
            sorted_so_far = False
            report(UserError(f"unsorted: '{key}' after '{last}'", where=where, fix=SORT_FIX))
        last = key
        table[key] = value
    return table


def read_counts(path: Path) -> dict[str, int]:
    """Read a table of whole numbers (utt2num_frames): key to number.

    Raises:
        UserError: as `read_table`, or a value is no whole number; names the key.
    """
    table = read_table(path)
    for key, value in table.items():
        if not value.isdecimal():
            raise UserError(f"'{key} {value}': not a whole number", where=path, fix="Make it again")
    return {key: int(value) for key, value in table.items()}


def write_table(path: Path, table: Mapping[str, str] | Iterable[tuple[str, str]]) -> None:
    """Write a table sorted by key, atomically."""
    rows = table.items() if isinstance(table, Mapping) else table
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as stream:
        for key, value in sorted(rows):
            stream.write(f"{key} {value}\n")
