"""Kaldi's archives: float matrices, float vectors and int vectors in ark, scp and gzipped files.

A thin layer over the kaldi_io package (which parses the objects) that adds: compressed matrices,
row and column ranges, random access by scp that seeks, gzipped archives in both directions, fast
int vectors, writers whose files appear whole or not at all, and errors that name the archive and
the utterance. Formats: Kaldi's util/kaldi-table.h and matrix/kaldi-matrix.cc.
"""

from __future__ import annotations

import gzip
import os
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, cast

import numpy as np

from hadpsgd.errors import UserError
from hadpsgd.files import atomic_file
from hadpsgd.kaldi_stream import Array, Kind, Stream, open_file, open_pipe, package

_PREFIX = re.compile(r"^(ark|scp)(,\w+)*:")
_RANGE = re.compile(r"^(?P<file>.*)\[(?P<rows>[\d:]*)(,(?P<cols>[\d:]*))?\]$")
_OFFSET = re.compile(r"^(?P<file>.+):(?P<offset>\d+)$")
_OPEN_FILES = 8
_INT = np.dtype([("size", "i1"), ("value", "<i4")])


def iterate(
    source: str | Path, kind: Kind = "matrix", *, allow_pipes: bool = False
) -> Iterator[tuple[str, Array]]:
    """Iterate (utterance, array) over an archive or an scp, in its order, streaming.

    `source` is a path (`.scp` is a script file, anything else an archive, gzipped or not) or an
    rspecifier (`ark:file`, `scp:file`, `ark:gunzip -c ali.1.gz |`).

    Raises:
        UserError: missing or truncated file (names the utterance), another kind of object, a
            pipe without `allow_pipes`.
    """
    prefix = _PREFIX.match(str(source))
    file = str(source)[prefix.end() :].strip() if prefix else str(source)
    if prefix[1] == "scp" if prefix else file.endswith(".scp"):
        with Scp(file, kind, allow_pipes=allow_pipes) as entries:
            yield from entries.items()
    elif file.endswith("|"):
        with open_pipe(file, allow_pipes) as stream:
            yield from _objects(stream, kind)
    else:
        stream = open_file(Path(file))
        with stream.raw:
            yield from _objects(stream, kind)


def _objects(stream: Stream, kind: Kind) -> Iterator[tuple[str, Array]]:
    while (key := stream.key()) is not None:
        yield key, stream.object(kind, key)


def read(source: str | Path, kind: Kind = "matrix", *, allow_pipes: bool = False) -> Array:
    """Read one object: `file`, `file:offset`, `file:offset[rows]`, `file[rows,cols]`, `cmd |`.

    Ranges are Kaldi's, inclusive at both ends: `[0:9]` is ten rows.

    Raises:
        UserError: missing or truncated file, another kind of object, a range outside of it.
    """
    with _Files(None, allow_pipes) as files:
        return files.read(str(source), kind)


class Scp(Mapping[str, Array]):
    """A script file: utterance → array, read when it is asked for by seeking in its archive.

    Paths are relative to the current folder, as in Kaldi; where nothing lies there, to the
    nearest folder above the scp that has it, so that data can be read from elsewhere.
    Holds one line of text an utterance and a few open files.
    """

    def __init__(self, path: str | Path, kind: Kind = "matrix", *, allow_pipes: bool = False):
        """Read the script file.

        Raises:
            UserError: it is missing, or a line is not `utterance file`, or an utterance is twice.
        """
        self.path = Path(path)
        self.kind: Kind = kind
        self.entries = read_scp(self.path)
        self._files = _Files(self.path, allow_pipes)

    def __getitem__(self, key: str) -> Array:
        return self._files.read(self.entries[key], self.kind, key)

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, key: object) -> bool:
        return key in self.entries

    def locate(self, file: str) -> Path:
        """The archive that a line names."""
        return self._files.locate(file)

    def __enter__(self) -> Scp:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()


def resolved(scp: Scp, key: str) -> str:
    """The extended file name of an utterance, readable from any folder."""
    entry = scp.entries[key]
    ranged = _RANGE.match(entry)
    place = ranged["file"] if ranged else entry
    match = _OFFSET.match(place)
    file = match["file"] if match else place
    return entry.replace(file, str(scp.locate(file).resolve()), 1)


def read_scp(path: str | Path) -> dict[str, str]:
    """The lines of a script file: utterance → extended file name.

    Raises:
        UserError: missing file, a line that is not `utterance file`, an utterance that is twice.
    """
    try:
        lines = Path(path).read_bytes().decode().split("\n")
    except FileNotFoundError:
        raise UserError("no such file", where=path) from None
    except UnicodeDecodeError:
        raise UserError("not a text file", where=path) from None
    entries: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line and number == len(lines):
            break
        key, _, entry = line.partition(" ")
        where = f"{path}:{number}"
        if line.endswith("\r"):
            raise UserError("Windows line end", where=where, fix="Convert it with dos2unix")
        if not key or not entry.strip():
            raise UserError("not `utterance file`", where=where)
        if key in entries:
            raise UserError(f"utterance {key} is there twice", where=where)
        entries[key] = entry.strip()
    return entries


class _Files:
    """Reads objects by extended file name; keeps the archives read last open."""

    def __init__(self, scp: Path | None, allow_pipes: bool) -> None:
        self._folders = list(scp.resolve().parents) if scp else []
        self._allow_pipes = allow_pipes
        self._open: OrderedDict[str, Stream] = OrderedDict()
        self._process = os.getpid()

    def __enter__(self) -> _Files:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": OrderedDict()}

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the archives."""
        while self._open:
            self._open.popitem()[1].raw.close()

    def read(self, entry: str, kind: Kind, key: str | None = None) -> Array:
        """One object; `key` names it in errors."""
        ranged = None if entry.endswith("|") else _RANGE.match(entry)
        array = self._whole(ranged["file"] if ranged else entry, kind, key)
        if ranged is None:
            return array
        where = f"{entry}, utterance {key}" if key else entry
        return _cut(array, (ranged["rows"], ranged["cols"] or ""), where)

    def _whole(self, entry: str, kind: Kind, key: str | None) -> Array:
        if entry.endswith("|"):
            with open_pipe(entry, self._allow_pipes) as stream:
                return stream.object(kind, key)
        match = _OFFSET.match(entry)
        file, offset = (match["file"], int(match["offset"])) if match else (entry, 0)
        stream = self._stream(file)
        stream.seek(offset)
        return stream.object(kind, key)

    def _stream(self, file: str) -> Stream:
        if self._process != os.getpid():  # a forked file shares its position with the parent's
            self._process = os.getpid()
            self._open = OrderedDict()
        stream = self._open.pop(file, None) or open_file(self.locate(file))
        self._open[file] = stream
        if len(self._open) > _OPEN_FILES:
            self._open.popitem(last=False)[1].raw.close()
        return stream

    def locate(self, file: str) -> Path:
        path = Path(file)
        if not path.is_absolute() and not path.exists():
            return next((f / path for f in self._folders if (f / path).exists()), path)
        return path


def _cut(array: Array, ranges: tuple[str, str], where: str) -> Array:
    for axis, text in enumerate(ranges):
        if text in ("", ":"):
            continue
        first, _, last = text.partition(":")
        try:
            begin, end = int(first), int(last) + 1
        except ValueError:
            raise UserError(f"'{text}' is not a range first:last", where=where) from None
        # Kaldi tolerates rows that end a little behind the matrix: segment times are rounded
        beyond = end - array.shape[axis] if axis < array.ndim else 1
        if begin >= end or begin >= array.shape[axis] or beyond > (3 if axis == 0 else 0):
            raise UserError(f"range {text} is not in a matrix of {array.shape}", where=where)
        array = array[(slice(None),) * axis + (slice(begin, end),)]
    return array


class Writer:
    """Writes an archive, and its scp, that appear under their names once all is written.

    Arrays of integers become int vectors, other vectors and matrices float ones (float64 stays
    double). An archive named `.gz` is compressed and has no scp, for gzip cannot seek.
    Use as a context manager; after an exception nothing is left behind.
    """

    def __init__(
        self, *, ark: str | Path, scp: str | Path | None = None, recorded_as: str | Path = ""
    ):
        """`recorded_as` is the archive's path in the scp, where it will be moved after writing."""
        self.ark, self.scp = Path(ark), Path(scp) if scp else None
        if self.scp and self.ark.suffix == ".gz":
            raise ValueError("a gzipped archive has no scp")
        self.recorded_as = str(recorded_as or ark)
        self.count = 0
        self._stack = ExitStack()

    def __enter__(self) -> Writer:
        with ExitStack() as stack:
            if self.scp:  # entered first, renamed last: an scp never points to a missing archive
                index = stack.enter_context(atomic_file(self.scp))
                self._index = stack.enter_context(index.open("w", encoding="utf-8"))
            temporary = stack.enter_context(atomic_file(self.ark))
            plain = stack.enter_context(temporary.open("wb", buffering=1 << 20))
            self._stream: BinaryIO = plain
            if self.ark.suffix == ".gz":  # without name and time: same content, same bytes
                zipped = gzip.GzipFile("", "wb", fileobj=plain, mtime=0, compresslevel=6)
                self._stream = cast(BinaryIO, stack.enter_context(zipped))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def write(self, key: str, array: Array) -> None:
        """Append one utterance."""
        if not key or any(letter.isspace() for letter in key):
            raise UserError(f"'{key}' cannot be an utterance: names have no blanks", where=self.ark)
        self._stream.write(f"{key} ".encode())
        if self.scp:
            self._index.write(f"{key} {self.recorded_as}:{self._stream.tell()}\n")
        self._stream.write(encode(array))
        self.count += 1


def encode(array: Array) -> bytes:
    """An array as Kaldi's binary object: int vector, float/double vector or matrix."""
    if array.dtype.kind in "iub":
        values = np.empty(_check_dims(array, 1).shape, _INT)
        values["size"], values["value"] = 4, array
        if not np.array_equal(values["value"], array):
            raise ValueError("integers beyond 32 bits")
        return b"\0B\4" + np.int32(len(array)).tobytes() + values.tobytes()
    array = array if array.dtype == np.float64 else array.astype(np.float32, copy=False)
    write = package.write_vec_flt if array.ndim == 1 else package.write_mat
    sink = _Sink()
    write(sink, _check_dims(array, 1, 2))
    return b"".join(sink.parts)


class _Sink:
    """What the package takes for a file opened for writing."""

    mode = "wb"

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.write = self.parts.append


def _check_dims(array: Array, *allowed: int) -> Array:
    if array.ndim not in allowed:
        raise ValueError(f"an array of {array.ndim} dimensions of {array.dtype}")
    return array


def write(path: str | Path, array: Array) -> None:
    """Write one object to a file of its own (final.mat and the like), atomically."""
    with atomic_file(Path(path)) as temporary:
        temporary.write_bytes(encode(array))


def write_archive(
    ark: str | Path, items: Iterable[tuple[str, Array]], scp: str | Path | None = None
) -> int:
    """Write (utterance, array) pairs as an archive; returns how many."""
    with Writer(ark=ark, scp=scp) as writer:
        for key, array in items:
            writer.write(key, array)
        return writer.count
