"""One Kaldi object out of a file: opening (plain, gzipped, piped), parsing, naming what is broken.

`hadpsgd.kaldi_io` builds archives and script files on it.
"""

from __future__ import annotations

import gzip
import importlib
import io
import os
import struct
import subprocess
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, Literal, cast

import numpy as np
from numpy.typing import NDArray

from hadpsgd.errors import UserError
from hadpsgd.kaldi_compressed import read_compressed
from hadpsgd.stalled import Output, kill


def _import_package() -> ModuleType:
    """Import kaldi_io; without a Kaldi it prints a warning, and it puts Kaldi into PATH."""
    before = dict(os.environ)
    if not Path(before.get("KALDI_ROOT") or "none").is_dir():
        os.environ["KALDI_ROOT"] = str(Path(__file__).parent)
    try:
        return importlib.import_module("kaldi_io")
    finally:
        os.environ.clear()
        os.environ.update(before)


package = _import_package()

Kind = Literal["matrix", "vector", "ints"]
Array = NDArray[Any]

_NAMES = {"matrix": "a float matrix", "vector": "a float vector", "ints": "an int vector"}
_LONGEST_KEY = 4096
_BUFFER = 1 << 16  # what a pipe holds
_END_SECONDS = 10.0
"""What a command has to end in once nobody reads it."""
_FAIL_SECONDS = 2.0
"""What one has to end in whose output is broken."""
_BROKEN = (
    AssertionError, EOFError, IndexError, MemoryError, OverflowError, TypeError, ValueError,
    struct.error, zlib.error, gzip.BadGzipFile,
    package.BadInputFormat, package.UnknownMatrixHeader, package.UnknownVectorHeader,
)  # fmt: skip


class Stream:
    """A binary file as the kaldi_io package reads it; a read that comes up short is an EOFError."""

    mode = "rb"

    def __init__(self, raw: BinaryIO, name: str) -> None:
        self.raw = raw
        self.name = name
        self._pushed = b""

    def read(self, size: int) -> bytes | bytearray:
        """Exactly `size` bytes; a bytearray where they are many, so that views are writable."""
        if size < 0:
            raise ValueError(f"size {size}")
        pushed, self._pushed = self._pushed[:size], self._pushed[size:]
        data = pushed + self.raw.read(size - len(pushed))
        if len(data) < size:
            raise EOFError
        return data if size < 16 else bytearray(data)

    def readline(self) -> bytes:
        """A line of a text object."""
        line, self._pushed = self._pushed + self.raw.readline(), b""
        return line

    def push(self, data: bytes | bytearray) -> None:
        """Give bytes back, to be read again."""
        self._pushed = bytes(data) + self._pushed

    def seek(self, offset: int) -> None:
        """Go to a byte of the file."""
        self._pushed = b""
        self.raw.seek(offset)

    def key(self) -> str | None:
        """The next utterance of an archive, or None at its end.

        Raises:
            UserError: what follows is not an utterance, or the file ends within its name.
        """
        letters = bytearray()
        try:
            while (letter := self.raw.read(1)) not in (b" ", b""):
                if letter == b"\n" and not letters:
                    continue
                letters += letter
                if letter < b" " or len(letters) > _LONGEST_KEY:
                    raise ValueError("not a name")
            if letters and not letter:
                raise EOFError
            return letters.decode() if letters else None
        except _BROKEN as error:
            raise _explained(self.name, error, "an archive") from None

    def object(self, kind: Kind, key: str | None = None) -> Array:
        """Read one object.

        Raises:
            UserError: truncated, or another kind of object; names `key`.
        """
        try:
            return _READERS[kind](self)
        except _BROKEN as error:
            where = f"{self.name}, utterance {key}" if key else self.name
            raise _explained(where, error, _NAMES[kind]) from None


def _explained(where: str, error: BaseException, wanted: str) -> UserError:
    if isinstance(error, EOFError | zlib.error):  # gzip raises these where it is cut
        return UserError("the file ends in the middle", where=where, fix="Make it again")
    return UserError(f"not {wanted} in Kaldi's format", where=where)


def _matrix(stream: Stream) -> Array:
    start = stream.read(5)
    if start[:4] == b"\0BCM":
        token = start[2:] if start[4:] == b" " else start[2:] + stream.read(1)
        return read_compressed(stream.read, token.decode().strip())
    stream.push(start)
    return package.read_mat(stream)


def _vector(stream: Stream) -> Array:
    vector = package.read_vec_flt(stream)
    return vector if vector.flags.writeable else vector.copy()


def _ints(stream: Stream) -> Array:
    first = stream.read(1)
    if first == b"\n":  # an empty vector in text form
        return np.zeros(0, np.int32)
    stream.push(first)
    return np.ascontiguousarray(package.read_vec_int(stream))


_READERS: dict[str, Callable[[Stream], Array]] = {
    "matrix": _matrix,
    "vector": _vector,
    "ints": _ints,
}


def open_file(path: Path) -> Stream:
    """Open a plain or gzipped file; the caller closes `.raw`.

    Raises:
        UserError: it is missing or cannot be read.
    """
    try:
        raw = gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # noqa: SIM115
    except FileNotFoundError:
        raise UserError("no such file", where=path) from None
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", where=path) from None
    return Stream(cast(BinaryIO, raw), str(path))


@contextmanager
def open_pipe(command: str, allowed: bool) -> Iterator[Stream]:
    """The output of a command, `cmd ... |`.

    Raises:
        UserError: commands are not allowed, or this one failed or fell silent.
    """
    if not allowed:
        raise UserError(
            "a command where a file is wanted, and running commands is not allowed",
            where=command,
            fix="Allow pipes in the config for data that you trust",
        )
    process = subprocess.Popen(
        command.rstrip("| \t"),
        shell=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        bufsize=0,
        process_group=0,
    )
    raw = io.BufferedReader(Output(cast(io.RawIOBase, process.stdout), command), _BUFFER)
    try:
        yield Stream(cast(BinaryIO, raw), command)
        ended = not raw.read(1)  # a reader of one object may leave before the end
    except UserError as error:
        # asked before its output is closed: then many a program that prints on fails, too
        status = _status(process, _FAIL_SECONDS)
        kill(process)  # what a shell that has ended left behind, too
        if status:  # what came out is broken because the command failed
            raise _failed(command, status) from error
        raise
    except KeyboardInterrupt:
        kill(process)  # a command has a group of its own, which Ctrl-C does not reach
        raise
    finally:
        raw.close()
        status = _status(process, _END_SECONDS)
        if status is None:
            kill(process)
            process.wait()
    if ended and status:
        raise _failed(command, status)


def _status(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """That of a command which ends within so many seconds."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def _failed(command: str, status: int) -> UserError:
    return UserError(f"the command failed with status {status}", where=command)
