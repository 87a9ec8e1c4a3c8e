"""Files in the LDC's folders, however the discs were copied: found by name at any depth."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from hadpsgd.errors import UserError

_AUDIO = (".sph", ".wav", ".flac")


def every(folder: Path, pattern: str) -> list[Path]:
    """All files whose name matches a wildcard, sorted by path.

    Raises:
        UserError: there is no such folder, or no such file in it.
    """
    if not folder.is_dir():
        raise UserError("no such folder", where=folder, fix="Say where the LDC's folder lies")
    found = sorted(path for path in folder.rglob(pattern) if path.is_file())
    if not found:
        raise UserError(f"no file {pattern} in this folder", where=folder)
    return found


def one(folder: Path, name: str) -> Path:
    """The file of that name; raises as `every`, and where there are several."""
    found = every(folder, name)
    if len(found) > 1:
        raise UserError(f"two files {name}: {found[0]} and {found[1]}", where=folder)
    return found[0]


def recordings(folders: Iterable[Path], name: str) -> dict[str, Path]:
    """Recordings by lower-case name (sw02001), which must match a regular expression.

    A recording that was converted goes before its Sphere file.

    Raises:
        UserError: a folder is missing or has none, or two files are of one recording.
    """
    wanted, found = re.compile(name), dict[str, Path]()
    for folder in folders:
        if not folder.is_dir():
            raise UserError("no such folder", where=folder, fix="Say where the LDC's folder lies")
        paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in _AUDIO)
        fitting = [path for path in paths if wanted.fullmatch(path.stem.lower())]
        if not fitting:
            raise UserError(f"no recordings here ({', '.join(_AUDIO)})", where=folder)
        for path in fitting:
            _add(found, path)
    return dict(sorted(found.items()))


def _add(found: dict[str, Path], path: Path) -> None:
    name = path.stem.lower()
    known = found.setdefault(name, path)
    order: Sequence[str] = _AUDIO[::-1]
    here, there = order.index(path.suffix.lower()), order.index(known.suffix.lower())
    if known != path and here == there:
        raise UserError(f"two recordings {name}: {known} and {path}", where=path.parent)
    if here < there:
        found[name] = path
