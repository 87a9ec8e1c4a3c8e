"""Where matrices lie in archives: what is stored plainly can be read there, again and again."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np

from hadpsgd.kaldi_io import Scp

_OFFSET = re.compile(r"^(?P<file>.+):(?P<offset>\d+)$")
_HEADER = np.dtype([("token", "S5"), ("size", "i1"), ("rows", "<i4"), ("size2", "i1"),
                    ("columns", "<i4")])  # fmt: skip
_FLOATS = b"\0BFM "


class Place(NamedTuple):
    """float32 [rows, columns], row after row, from a byte of a file."""

    file: Path
    byte: int
    rows: int
    columns: int


class Places:
    """Places of the matrices of a script file; keeps the archive of the last one open."""

    def __init__(self, scp: Scp) -> None:
        self._scp = scp
        self._name, self._file, self._open = "", Path(), -1

    def __enter__(self) -> Places:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._open >= 0:
            os.close(self._open)

    def __call__(self, key: str) -> Place | None:
        """The place of an utterance's matrix.

        None where it is not stored plainly: compressed, in text or double, gzipped, a range or
        the output of a command; or where there is no such file.
        """
        entry = self._scp.entries[key]
        if entry.endswith(("|", "]", ".gz")):
            return None
        match = _OFFSET.match(entry)
        name, offset = (match["file"], int(match["offset"])) if match else (entry, 0)
        if name != self._name and not self._opened(name):
            return None
        raw = os.pread(self._open, _HEADER.itemsize, offset)
        if len(raw) < _HEADER.itemsize:
            return None
        header = np.frombuffer(raw, _HEADER)[0]
        if not raw.startswith(_FLOATS) or header["size"] != 4 or header["size2"] != 4:
            return None
        byte = offset + _HEADER.itemsize
        return Place(
            file=self._file, byte=byte, rows=int(header["rows"]), columns=int(header["columns"])
        )

    def _opened(self, name: str) -> bool:
        self.__exit__(None, None, None)
        self._name, self._open = "", -1
        file = self._scp.locate(name)
        if name.endswith(".gz") or not file.is_file():
            return False
        self._name, self._file, self._open = name, file, os.open(file, os.O_RDONLY)
        return True
