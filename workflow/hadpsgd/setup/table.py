"""A table of recordings and what is said in them: CSV as spreadsheets and corpora write it.

Separated by comma, semicolon, tabulator or `|`, with a line of column names, which Excel's `sep=;`
may precede; UTF-8, with or without a byte order mark. Names of columns are taken in any case, and
under the names that Common Voice and others have for them.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from hadpsgd.corpus.tables import Report
from hadpsgd.errors import UserError

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tabulator", "|": "|"}
COLUMNS = {
    "file": ("file", "wav", "path", "audio", "filename", "file_name", "wav_filename"),
    "text": ("text", "transcript", "transcription", "sentence"),
    "speaker": ("speaker", "speaker_id", "client_id", "spk"),
    "set": ("set", "split", "subset"),
}
"""What a column is, and the names by which it goes."""
NEEDED = ("file", "text")
SETS = {
    "train": "train",
    "training": "train",
    "dev": "dev",
    "development": "dev",
    "valid": "dev",
    "validation": "dev",
    "test": "test",
}
"""Values of the column `set`, and what they are here."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One recording."""

    line: int
    """Of the table, for messages."""
    file: Path
    text: str
    """As it is written."""
    speaker: str
    """Empty where the table does not say."""
    set: str
    """train, dev or test; empty where the table does not say."""


def read_rows(path: Path, report: Report) -> list[Row]:
    """Read a table; files are looked up from its folder.

    Faults reported, by line: another number of columns than the first line has, no file, no text, a
    file that an earlier line has, another set than `SETS`, a speaker or set in some lines alone (at
    the first of them, with their number), a quotation mark that takes in other lines.

    Raises:
        UserError: it cannot be read, is not UTF-8, lacks a column or has no lines.
    """
    text = _text(path)
    separator = max(SEPARATORS, key=text.partition("\n")[0].count)
    lines = list(io.StringIO(text, newline=""))
    csv.field_size_limit(max(len(text), csv.field_size_limit()))  # a quotation mark takes in all
    reader = csv.reader(lines, delimiter=separator)
    header = [name.strip().lower() for name in next(reader, [])]
    if header == ["sep=", ""]:  # for Excel: the separator in a line of its own
        header = [name.strip().lower() for name in next(reader, [])]
    places = _places(f"{path}:{max(reader.line_num, 1)}", header, separator)
    rows, filled, last = [], False, reader.line_num
    for cells in reader:
        line, last = last + 1, reader.line_num
        if any(cell.strip() for cell in cells):
            filled = True
            where = f"{path}:{line}"
            if last > line or (last == len(lines) and _is_open(lines[-1], separator)):
                takes = f"takes in all up to line {last}" if last > line else "is not closed"
                what = f'a quotation mark (") {takes}'
                fix = "Close it in its line, or remove it; write a text into one line"
                report(UserError(what, where=where, fix=fix))
                continue
            if len(cells) != len(header):
                report(
                    UserError(
                        f"{len(cells)} columns instead of {len(header)}",
                        where=where,
                        fix=f'Put a text with a {SEPARATORS[separator]} in it between quotes "..."',
                    )
                )
                continue
            row = _row(path, line, {k: cells[i] for k, i in places.items()})
            if not row.file.name or row.file == Path(os.path.normpath(path.parent)):
                fix = "Complete or remove the line"
                report(UserError("no file is named", where=where, fix=fix))
                continue
            rows.append(row)
    if not filled:
        raise UserError("no recordings in it", where=path, fix="Write one line for each")
    _check(path, rows, places.keys(), report)
    return rows


def _is_open(line: str, separator: str) -> bool:
    """Whether a quotation mark is not closed in a line, after which there is none to take in."""
    try:
        list(csv.reader([line], delimiter=separator, strict=True))
    except csv.Error as error:
        return "unexpected end" in str(error)
    return False


def _text(path: Path) -> str:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", where=path) from None
    except UnicodeDecodeError:
        fix = "Save it as 'CSV UTF-8', or convert it: iconv -t UTF-8"
        raise UserError("not UTF-8 text", where=path, fix=fix) from None
    if "\0" in text:
        raise UserError("not a text file", where=path, fix="Save it as 'CSV UTF-8'")
    return text


def _places(where: str, header: list[str], separator: str) -> dict[str, int]:
    """Which column is which.

    Raises:
        UserError: one is missing, or there twice.
    """
    places: dict[str, int] = {}
    for column, names in COLUMNS.items():
        found = [i for i, name in enumerate(header) if name in names]
        if len(found) > 1:
            twice = " and ".join(f"'{header[i]}'" for i in found)
            raise UserError(f"{twice} are both the column {column}", where=where)
        if found:
            places[column] = found[0]
    missing = [column for column in NEEDED if column not in places]
    if missing:
        has = f"the first line has {', '.join(map(repr, header)) or 'nothing'}"
        raise UserError(
            f"no column {' and no column '.join(missing)}: {has}, separated by "
            f"{SEPARATORS[separator]}",
            where=where,
            fix="Write file,text (and, if known, speaker, set) into the first line",
        )
    return places


def _row(path: Path, line: int, cells: dict[str, str]) -> Row:
    return Row(
        line=line,
        file=Path(os.path.normpath(path.parent / cells["file"].strip())),
        text=cells["text"].strip(),
        speaker=cells.get("speaker", "").strip(),
        set=SETS.get(cells.get("set", "").strip().lower(), cells.get("set", "").strip()),
    )


def _report_cells(path: Path, wrong: dict[str, list[int]], report: Report) -> None:
    """A line for each wrong value, at its first place, however many lines of the table have it."""
    for what, lines in wrong.items():
        said = f"{what}, in {len(lines)} lines" if len(lines) > 1 else what
        missing = "Write one into every line, or leave the column out"
        fix = missing if what.startswith("no ") else "Write train, dev or test"
        report(UserError(said, where=f"{path}:{lines[0]}", fix=fix))


def _check(path: Path, rows: list[Row], columns: Collection[str], report: Report) -> None:
    seen: dict[Path, int] = {}
    wrong: dict[str, list[int]] = {}
    for row in rows:
        where = f"{path}:{row.line}"
        if not row.text:
            report(UserError(f"no text for {row.file.name}", where=where, fix="Write what is said"))
        if row.file in seen:
            what = f"{row.file} is in line {seen[row.file]} already"
            report(UserError(what, where=where, fix="Remove one of them"))
        seen.setdefault(row.file, row.line)
        for column in ("speaker", "set"):
            if column in columns and not getattr(row, column):
                wrong.setdefault(f"no {column}", []).append(row.line)
        if row.set and row.set not in SETS.values():
            wrong.setdefault(f"set '{row.set}'", []).append(row.line)
    _report_cells(path, wrong, report)
    given = {row.set for row in rows} - {""}
    if given and (lacking := {"train", "dev", "test"} - given):
        report(
            UserError(
                f"no line is of the set {sorted(lacking)[0]}",
                where=path,
                fix="Name some, or leave the column out: the sets are then made here",
            )
        )
