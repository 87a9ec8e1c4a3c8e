"""The folder in which examples come into being: what is finished in it outlives a kill."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hadpsgd.files import (
    MADE,
    check_folder,
    check_replaced,
    explain_os_errors,
    followed,
    write_text,
)
from hadpsgd.locks import locked, myself

_KEY, _LOCK = "key", "lock"


@contextmanager
def partial_folder(out: Path) -> Iterator[Path]:
    """A folder beside `out` that nobody else writes; what a killed process left there stays.

    It is removed when this fails before a chunk is finished.

    Raises:
        UserError: another process makes the same examples, the disk is full, or `out` holds
            something else.
    """
    out = followed(out)
    check_folder(out)
    check_replaced(out)
    folder = out.with_name(f".{out.name}.partial")
    with explain_os_errors(out):
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / _LOCK, myself(), does="makes these examples"):
            try:
                yield folder
            except BaseException:
                if folder.is_dir() and not any(folder.glob("chunk.*.json")):
                    shutil.rmtree(folder)
                raise


def keep_only(folder: Path, key: str, *, spare: Path) -> None:
    """Keep what was made for the same `key`, and the file `spare`; remove the rest."""
    if (folder / _KEY).is_file() and (folder / _KEY).read_bytes() == key.encode():
        return
    for path in folder.iterdir():
        if path.name != _LOCK and path != spare:
            path.unlink()
    write_text(folder / _KEY, key)


def key_of(*values: object, folders: Iterable[Path]) -> str:
    """Of values, and of the script files in folders by their size and time."""
    files = [file for folder in folders for file in sorted(folder.glob("*.scp"))]
    states = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(json.dumps([values, states]).encode()).hexdigest()


def publish(folder: Path, *, out: Path) -> None:
    """Take away what was only there to be made, and put the folder in its place."""
    for path in (folder / _KEY, folder / _LOCK, *folder.glob("chunk.*.json")):
        path.unlink(missing_ok=True)
    (folder / MADE).touch()
    out = followed(out)
    if out.exists():
        shutil.rmtree(out)
    folder.replace(out)
