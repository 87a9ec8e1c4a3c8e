"""Checksums of files that may be many and large; each is read again only if it may have changed.

A file whose size and time of change are as recorded has the recorded checksum. With others it is
read, and only another checksum is a change: `touch` is none, and an older file in its place is
one. (Content that changes while size and time stay is not noticed.)
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from hadpsgd.files import sha256, write_text
from hadpsgd.progress import Progress

THREADS = 8
MISSING = "missing"
_SETTLED_NS = 2_000_000_000
"""A file that changed this recently may change again without another time: not recorded."""

_Entry = tuple[int, int, str]


class Checksums:
    """Of files by path; `write` records them for the next time."""

    def __init__(self, record: Path) -> None:
        """Start from what is recorded there, and beside it for other results folders."""
        self._record = record
        self._known: dict[str, _Entry] = {}
        for path in (*sorted(record.parents[1].glob(f"*/{record.name}")), record):
            self._known |= _read(path)
        self._recorded = _read(record)
        self._read_bytes = 0

    def of(self, paths: Iterable[Path]) -> list[str]:
        """Checksum of each file in order; `MISSING` where there is none that can be read."""
        wanted = [str(path.absolute()) for path in paths]
        done = 0
        progress = Progress(
            lambda _: f"checksums: {done} of {len(wanted)} files, {self._read_bytes / 1e9:.1f} GB"
        )
        found = []
        with ThreadPoolExecutor(THREADS) as pool:
            for path, entry in zip(wanted, pool.map(self._look, wanted), strict=True):
                found.append(MISSING if entry is None else entry[2])
                if entry is not None:
                    self._note(path, entry)
                done += 1
                progress.show()
        return found

    def write(self) -> None:
        """Record them; only for who has the lock of the results.

        Raises:
            UserError: they cannot be written there.
        """
        if self._recorded != _read(self._record):
            write_text(self._record, json.dumps(self._recorded, indent=0) + "\n")

    def _look(self, path: str) -> _Entry | None:
        try:
            found = Path(path).stat()
            known = self._known.get(path)
            if known is not None and known[:2] == (found.st_size, found.st_mtime_ns):
                return known
            checksum = sha256(Path(path))
        except OSError:
            return None
        self._read_bytes += found.st_size
        return found.st_size, found.st_mtime_ns, checksum

    def _note(self, path: str, entry: _Entry) -> None:
        self._known[path] = entry
        if time.time_ns() - entry[1] > _SETTLED_NS:
            self._recorded[path] = entry


def digest(parts: Iterable[object]) -> str:
    """One hash of several texts or checksums."""
    return hashlib.sha256(json.dumps([*parts]).encode()).hexdigest()[:16]


def _read(record: Path) -> dict[str, _Entry]:
    """What is recorded; nothing where that is missing or damaged."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        content = json.loads(record.read_text(encoding="utf-8"))
        return {
            path: (int(size), int(changed), str(value))
            for path, (size, changed, value) in content.items()
        }
    return {}
