"""Kaldi's binary primitives: tokens, numbers, vectors and matrices (Kaldi's base/io-funcs)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.errors import UserError

HEADER = b"\0B"
FloatArray = NDArray[np.float32] | NDArray[np.float64]

_VECTORS: dict[bytes, np.dtype] = {b"FV": np.dtype("<f4"), b"DV": np.dtype("<f8")}
_SYMMETRIC: dict[bytes, np.dtype] = {b"FP": np.dtype("<f4"), b"DP": np.dtype("<f8")}
_MATRICES: dict[bytes, np.dtype] = {b"FM": np.dtype("<f4"), b"DM": np.dtype("<f8")}


class Reader:
    """Reads one binary Kaldi object from memory; every error names the file."""

    def __init__(self, content: bytes, name: object) -> None:
        self.content = content
        self.name = name
        self.position = 0

    @classmethod
    def open(cls, path: Path) -> Reader:
        """Read a whole file that starts with Kaldi's binary header.

        Raises:
            UserError: the file is missing or is in text form.
        """
        try:
            content = Path(path).read_bytes()
        except FileNotFoundError:
            raise UserError("no such file", where=path) from None
        if not content.startswith(HEADER):
            raise UserError(
                "not a binary Kaldi file", where=path, fix="Write it with Kaldi's --binary=true"
            )
        reader = cls(content, path)
        reader.position = len(HEADER)
        return reader

    def fail(self, what: str) -> UserError:
        """The error to raise at the present position."""
        return UserError(
            f"{what} at byte {self.position}", where=self.name, fix="Copy or make the file again"
        )

    def _take(self, size: int) -> bytes:
        piece = self.content[self.position : self.position + size]
        if len(piece) < size:
            raise self.fail("the file is cut short")
        self.position += size
        return piece

    def at_end(self) -> bool:
        """Nothing is left."""
        return self.position == len(self.content)

    def finish(self) -> None:
        """Refuse bytes after the end of the object."""
        if not self.at_end():
            raise self.fail("unexpected content")

    def token(self) -> str:
        """A token: characters up to a space."""
        end = self.content.find(b" ", self.position, self.position + 64)
        if end < 0:
            raise self.fail("a token is missing or the file is cut short")
        piece = self.content[self.position : end]
        self.position = end + 1
        return piece.decode("ascii", errors="replace")

    def peek(self) -> str:
        """The next token, left in place."""
        start = self.position
        token = self.token()
        self.position = start
        return token

    def expect(self, *tokens: str) -> str:
        """Read a token that must be one of `tokens`."""
        start = self.position
        token = self.token()
        if token not in tokens:
            self.position = start
            raise self.fail(f"expected {' or '.join(tokens)}, found '{token[:20]}'")
        return token

    def _sized(self, dtype: str, mark: int) -> NDArray:
        size = self._take(1)[0]
        if size != mark:
            self.position -= 1
            raise self.fail(f"a number of {mark & 0x7F} bytes is missing")
        return np.frombuffer(self._take(np.dtype(dtype).itemsize), dtype)

    def int32(self) -> int:
        """A signed integer of 4 bytes."""
        return int(self._sized("<i4", 4)[0])

    def uint32(self) -> int:
        """An unsigned integer of 4 bytes (its size byte is -4)."""
        return int(self._sized("<u4", 0xFC)[0])

    def float32(self) -> float:
        """A float of 4 bytes."""
        return float(self._sized("<f4", 4)[0])

    def float64(self) -> float:
        """A float of 8 bytes."""
        return float(self._sized("<f8", 8)[0])

    def int32_array(self, count: int) -> NDArray[np.int32]:
        """`count` integers, each with its size byte."""
        item = np.dtype([("size", "u1"), ("value", "<i4")])
        array = np.frombuffer(self._take(count * item.itemsize), item)
        if np.any(array["size"] != 4):
            raise self.fail("integers of 4 bytes are missing")
        return np.ascontiguousarray(array["value"])

    def int32_vector(self) -> NDArray[np.int32]:
        """A vector of integers (WriteIntegerVector)."""
        if self._take(1)[0] != 4:
            raise self.fail("a vector of 4-byte integers is missing")
        (count,) = np.frombuffer(self._take(4), "<i4")
        if count < 0:
            raise self.fail("a vector has a negative size")
        return np.frombuffer(self._take(4 * int(count)), "<i4").astype(np.int32)

    def vector(self) -> FloatArray:
        """A vector of floats or doubles."""
        start = self.position
        dtype = _VECTORS.get(self.token().encode())
        if dtype is None:
            self.position = start
            raise self.fail("a vector is missing")
        size = self.int32()
        return np.frombuffer(self._take(size * dtype.itemsize), dtype).copy()

    def matrix(self) -> FloatArray:
        """A matrix of floats or doubles."""
        start = self.position
        dtype = _MATRICES.get(self.token().encode())
        if dtype is None:
            self.position = start
            raise self.fail("a matrix is missing")
        rows, columns = self.int32(), self.int32()
        flat = np.frombuffer(self._take(rows * columns * dtype.itemsize), dtype)
        return flat.reshape(rows, columns).copy()

    def symmetric(self) -> FloatArray:
        """A symmetric matrix, stored as its lower triangle (SpMatrix)."""
        start = self.position
        dtype = _SYMMETRIC.get(self.token().encode())
        if dtype is None:
            self.position = start
            raise self.fail("a symmetric matrix is missing")
        size = self.int32()
        matrix = np.empty((size, size), dtype)
        rows, columns = np.tril_indices(size)
        matrix[rows, columns] = np.frombuffer(self._take(len(rows) * dtype.itemsize), dtype)
        matrix[columns, rows] = matrix[rows, columns]
        return matrix


class Writer:
    """Builds the bytes of one binary Kaldi object."""

    def __init__(self) -> None:
        self.parts: list[bytes] = [HEADER]

    def token(self, text: str) -> None:
        """A token and its space."""
        self.parts.append(text.encode("ascii") + b" ")

    def int32(self, value: int) -> None:
        """A signed integer of 4 bytes."""
        self.parts.append(b"\4" + np.int32(value).tobytes())

    def uint32(self, value: int) -> None:
        """An unsigned integer of 4 bytes."""
        self.parts.append(b"\xfc" + np.uint32(value).tobytes())

    def float32(self, value: float) -> None:
        """A float of 4 bytes."""
        self.parts.append(b"\4" + np.float32(value).tobytes())

    def float64(self, value: float) -> None:
        """A float of 8 bytes."""
        self.parts.append(b"\x08" + np.float64(value).tobytes())

    def int32_array(self, values: NDArray[np.integer]) -> None:
        """Integers, each with its size byte."""
        array = np.empty(np.size(values), [("size", "u1"), ("value", "<i4")])
        array["size"] = 4
        array["value"] = np.ravel(values)
        self.parts.append(array.tobytes())

    def int32_vector(self, values: NDArray[np.integer] | list[int]) -> None:
        """A vector of integers."""
        array = np.asarray(values, "<i4")
        self.parts.append(b"\4" + np.int32(array.size).tobytes() + array.tobytes())

    def vector(self, values: FloatArray) -> None:
        """A vector; float64 is written as doubles, all else as floats."""
        double = values.dtype == np.float64
        self.token("DV" if double else "FV")
        self.int32(values.size)
        self.parts.append(values.astype("<f8" if double else "<f4").tobytes())

    def matrix(self, values: FloatArray) -> None:
        """A matrix; float64 is written as doubles, all else as floats."""
        double = values.dtype == np.float64
        self.token("DM" if double else "FM")
        self.int32(values.shape[0])
        self.int32(values.shape[1])
        self.parts.append(values.astype("<f8" if double else "<f4").tobytes())

    def symmetric(self, values: FloatArray) -> None:
        """The lower triangle of a symmetric matrix."""
        double = values.dtype == np.float64
        self.token("DP" if double else "FP")
        self.int32(len(values))
        triangle = values[np.tril_indices(len(values))]
        self.parts.append(triangle.astype("<f8" if double else "<f4").tobytes())

    def content(self) -> bytes:
        """The whole object, header included."""
        return b"".join(self.parts)


def read_matrix(path: Path) -> FloatArray:
    """Read a file that holds one matrix (final.mat)."""
    reader = Reader.open(path)
    matrix = reader.matrix()
    reader.finish()
    return matrix


def matrix_bytes(values: FloatArray) -> bytes:
    """The content of a file that holds one matrix."""
    writer = Writer()
    writer.matrix(values)
    return writer.content()
