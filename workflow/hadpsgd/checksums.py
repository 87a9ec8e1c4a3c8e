"""Checksums of files that may be many and large; each is read again only if it may have changed.

A file that is the same on disk as recorded (inode), with the same size and times, has the recorded
checksum. Any other is read, and only another checksum is a change: `touch` is none, and an older
file in its place is one. (The device does not count: the same network share has another number on
each host, so everything would be read again there.)
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

_CHUNK = 10_000
"""Files whose checksums are waited for, and then recorded, together."""

_State = tuple[int, int, int, int]
"""Size, time of modification and of any change (ns), inode."""
_Entry = tuple[_State, str]


class Checksums:
    """Of files by path; `write` records them for the next time."""

    def __init__(self, record: Path) -> None:
        """Start from what is recorded there, and beside it for other results folders."""
        self._record = record
        self._known: dict[str, _Entry] = {}
        for path in (*sorted(record.parents[1].glob(f"*/{record.name}")), record):
            self._known |= _read(path)
        self._recorded = _read(record)
        self._news = False
        self._locked = False
        self._read_bytes = 0

    def of(self, paths: Iterable[Path]) -> list[str]:
        """Checksum of each file in order; `MISSING` where there is none that can be read."""
        wanted = [str(path.absolute()) for path in paths]
        progress = Progress(
            "checksums", len(wanted), "files", lambda _: f"{self._read_bytes / 1e9:.1f} GB read"
        )
        found = []
        with ThreadPoolExecutor(THREADS) as pool:
            for start in range(0, len(wanted), _CHUNK):
                chunk = wanted[start : start + _CHUNK]
                for path, entry in zip(chunk, pool.map(self._look, chunk), strict=True):
                    found.append(MISSING if entry is None else entry[1])
                    if entry is not None:
                        self._note(path, entry)
                    progress.add()
                if self._locked:
                    self.write()
        return found

    def write(self) -> None:
        """Record them, and from here on each chunk; only for who has the lock of the results.

        Raises:
            UserError: they cannot be written there.
        """
        self._locked = True
        if self._news:
            write_text(self._record, json.dumps(self._recorded) + "\n")
            self._news = False

    def _look(self, path: str) -> _Entry | None:
        try:
            state = _state(Path(path))
            known = self._known.get(path)
            if known is not None and known[0] == state:
                return known
            checksum = sha256(Path(path))
        except OSError:
            return None
        self._read_bytes += state[0]
        return state, checksum

    def _note(self, path: str, entry: _Entry) -> None:
        self._known[path] = entry
        settled = time.time_ns() - entry[0][2] > _SETTLED_NS
        if settled and self._recorded.get(path) != entry:
            self._recorded[path] = entry
            self._news = True


def _state(path: Path) -> _State:
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def digest(parts: Iterable[object]) -> str:
    """One hash of several texts or checksums."""
    return hashlib.sha256(json.dumps([*parts]).encode()).hexdigest()[:16]


def _read(record: Path) -> dict[str, _Entry]:
    """What is recorded; nothing where that is missing or damaged."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        content = json.loads(record.read_text(encoding="utf-8"))
        return {
            path: ((int(size), int(modified), int(changed), int(inode)), str(value))
            for path, ((size, modified, changed, inode), value) in content.items()
        }
    return {}
