"""Checksums of the data that a run was made from, cheap to ask for again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hadpsgd.files import write_text

WHOLE = 256 * 2**20
"""Bytes up to which a file is read whole; of a larger one, a sample of blocks."""
_BLOCK = 2**20
_BLOCKS = 64
_HIDDEN = "."


def checksum(path: Path, root: Path | None = None) -> str:
    """`sha256:...` of a file's content, or `sampled:...` of a large file's size and 64 blocks.

    The blocks of 1 MiB lie evenly from the first to the last byte: a feature archive of hundreds
    of gigabytes is told from another without reading it. A table of files (`.scp`) below `root`
    counts as if it named them relative to it.
    """
    size = path.stat().st_size
    if root is not None and path.suffix == ".scp":
        text = path.read_bytes()
        for folder in (root.absolute(), root):
            text = text.replace(f" {folder}/".encode(), b" ")
        return "sha256:" + hashlib.sha256(text).hexdigest()
    with path.open("rb") as stream:
        if size <= WHOLE:
            return "sha256:" + hashlib.file_digest(stream, "sha256").hexdigest()
        digest = hashlib.sha256(str(size).encode())
        for block in range(_BLOCKS):
            stream.seek((size - _BLOCK) * block // (_BLOCKS - 1))
            digest.update(stream.read(_BLOCK))
    return "sampled:" + digest.hexdigest()


def checksums(root: Path, parts: Iterable[str], cache: Path | None = None) -> dict[str, str]:
    """Checksums of every file below `root/<part>`: path relative to root → checksum.

    `cache` keeps them with each file's size and time of change, so that the next run of the same
    workflow reads nothing again.
    """
    known = _read(cache)
    found: dict[str, str] = {}
    kept: dict[str, list[Any]] = {}
    for path in _files(root, parts):
        name = path.relative_to(root).as_posix()
        state = path.stat()
        mark = [state.st_size, state.st_mtime_ns]
        entry = known.get(str(path.absolute()))
        value = str(entry[2]) if entry and entry[:2] == mark else checksum(path, root)
        found[name] = value
        kept[str(path.absolute())] = [*mark, value]
    if cache is not None and not all(known.get(path) == entry for path, entry in kept.items()):
        write_text(cache, json.dumps(known | kept, indent=0) + "\n")
    return found


def combined(sums: dict[str, str]) -> str:
    """One checksum of many: of their names and values in order."""
    text = "".join(f"{name} {value}\n" for name, value in sorted(sums.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def _files(root: Path, parts: Iterable[str]) -> Iterable[Path]:
    for part in parts:
        start = root / part
        candidates = [start] if start.is_file() else sorted(start.rglob("*"))
        for path in candidates:
            hidden = any(name.startswith(_HIDDEN) for name in path.relative_to(root).parts)
            if path.is_file() and not hidden:
                yield path


def _read(cache: Path | None) -> dict[str, list[Any]]:
    try:
        return json.loads(cache.read_text(encoding="utf-8")) if cache else {}
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
