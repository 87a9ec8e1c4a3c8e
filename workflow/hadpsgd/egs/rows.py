"""Rows of arrays that lie one after another in .npy files, read where they are asked for.

Neighbours are read at once. Reads are positioned rather than through a memory map: a learner's
resident memory then stays the size of its batches (a map counts every page it touched), and a
read releases the interpreter lock, so that the next batch is gathered while the model trains.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from hadpsgd.egs.shards import TABLE
from hadpsgd.errors import UserError
from hadpsgd.files import DAMAGED_ARRAYS

OPEN_FILES = 512
"""Files that stay open: half of what a process may have by default."""
AGAIN = "Run `hadpsgd egs` again"


@dataclass(kw_only=True)
class _Open:
    """An open file."""

    descriptor: int
    readers: int = 0
    """Threads that read it now: it is not closed under them."""


@dataclass(kw_only=True)
class Files:
    """The files of `paths` that were read last, open; several threads may read."""

    paths: Sequence[Path]
    limit: int = OPEN_FILES
    opened: int = 0
    """How often a file was opened."""
    _open: OrderedDict[int, _Open] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def reading(self, number: int) -> Iterator[int]:
        """A descriptor of file `number` while the block runs."""
        with self._lock:
            file = self._open.get(number)
            if file is None:
                self._make_room()
                file = self._open[number] = _Open(
                    descriptor=os.open(self.paths[number], os.O_RDONLY)
                )
                self.opened += 1
            self._open.move_to_end(number)
            file.readers += 1
        try:
            yield file.descriptor
        finally:
            with self._lock:
                file.readers -= 1

    def _make_room(self) -> None:
        """Close those that were not read for longest, and are not read now."""
        idle = [number for number, file in self._open.items() if not file.readers]
        for number in idle[: max(0, len(self._open) - self.limit + 1)]:
            os.close(self._open.pop(number).descriptor)

    def __del__(self) -> None:
        """Close all."""
        for file in self._open.values():
            os.close(file.descriptor)


class Rows:
    """Rows of one type, in files of known numbers of them."""

    def __init__(self, paths: Sequence[Path], counts: Sequence[int], row: np.dtype) -> None:
        """Read the headers.

        Raises:
            UserError: a file is missing, truncated or of another type.
        """
        self._paths, self._row = paths, row
        self._firsts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self._starts = [
            check_array(path, (count,), row) for path, count in zip(paths, counts, strict=True)
        ]
        self.files = Files(paths=paths)
        self.reads = 0
        """System calls that read."""

    def verify(self, number: int, checksum: str) -> None:
        """Compare a file's data with its SHA-256.

        Raises:
            UserError: it is another.
        """
        verify_array(self._paths[number], self._starts[number], checksum)

    def shards(self, indices: NDArray[np.integer]) -> NDArray[np.int64]:
        """Numbers of the files that rows [n] are in."""
        return np.searchsorted(self._firsts, indices, side="right") - 1

    def read(
        self, indices: NDArray[np.integer], *, out: NDArray[np.void] | None = None
    ) -> NDArray[np.void]:
        """Rows [n], in `out` if there is one; neighbours asked for in their order are read at once.

        Raises:
            UserError: a file was cut or removed meanwhile.
        """
        rows = np.empty(len(indices), self._row) if out is None else out
        if not len(indices):
            return rows
        shards = self.shards(indices)
        breaks = (np.diff(indices) != 1) | (np.diff(shards) != 0)
        ends = np.concatenate([[0], np.flatnonzero(breaks) + 1, [len(indices)]])
        target, size = rows.view(np.uint8).data, self._row.itemsize
        for first, last in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            shard = int(shards[first])
            offset = self._starts[shard] + int(indices[first] - self._firsts[shard]) * size
            self._fill(target[first * size : last * size], shard, offset)
        return rows

    def _fill(self, place: memoryview, shard: int, offset: int) -> None:
        try:
            with self.files.reading(shard) as descriptor:
                while place:
                    self.reads += 1
                    count = os.preadv(descriptor, [place], offset)
                    if not count:
                        raise UserError("truncated shard", where=self._paths[shard], fix=AGAIN)
                    place, offset = place[count:], offset + count
        except FileNotFoundError:
            raise UserError("missing shard", where=self._paths[shard], fix=AGAIN) from None


@dataclass(frozen=True)
class Table:
    """The i-vectors."""

    path: Path
    values: NDArray[np.floating]
    """[vectors, dim], mapped: all learners of a host share its pages."""
    start: int

    def verify(self, checksum: str) -> None:
        """Compare the data with its SHA-256.

        Raises:
            UserError: it is another.
        """
        verify_array(self.path, self.start, checksum)


def read_table(folder: Path, described: dict[str, Any] | None, dtype: np.dtype) -> Table | None:
    """The table that meta.json describes, if it does.

    Raises:
        UserError: the file is missing, truncated or of another shape.
    """
    if described is None:
        return None
    path = folder / TABLE
    start = check_array(path, (described["vectors"], described["dim"]), dtype)
    return Table(path, np.asarray(np.load(path, mmap_mode="r")), start)


def check_array(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> int:
    """Compare a .npy file's header and size with what they should be; where its data begins.

    Raises:
        UserError: the file is missing, truncated or of another type.
    """
    try:
        with path.open("rb") as file:
            npy.read_magic(file)
            found, _, kind = npy.read_array_header_1_0(file)
            start, size = file.tell(), os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        raise UserError("missing shard", where=path, fix=AGAIN) from None
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", where=path) from None
    except DAMAGED_ARRAYS:
        raise UserError("not a shard: its header is broken", where=path, fix=AGAIN) from None
    if found != shape or kind != dtype:
        raise UserError(
            f"{kind} {found}, and meta.json says {dtype} {shape}", where=path, fix=AGAIN
        )
    wanted = start + int(np.prod(shape)) * dtype.itemsize
    if size != wanted:
        raise UserError(f"truncated shard: {size} bytes instead of {wanted}", where=path, fix=AGAIN)
    return start


def verify_array(path: Path, start: int, checksum: str) -> None:
    """Compare the SHA-256 of a .npy file's data.

    Raises:
        UserError: it is another.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(start)
        while block := file.read(1 << 22):
            digest.update(block)
    if digest.hexdigest() != checksum:
        raise UserError(
            "damaged shard: its checksum is not that of meta.json", where=path, fix=AGAIN
        )
