"""Shards of examples: pairs of .npy files that appear together with their description.

features.NNNN.npy is [subsequences, frames, dim] (float32 or float16), labels.NNNN.npy is int32
[subsequences, frames] of pdf-ids, -1 where a frame is padding. meta.json lists the shards with
the SHA-256 of their data.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

FORMAT = 1
"""Version of the description in meta.json."""
PADDING = -1
"""Label of a frame that is not there."""


class ArrayFile:
    """A .npy file that grows along its first axis; the shape in its header is set at the end."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: np.dtype) -> None:
        """`shape` is that of one element."""
        self.path = path
        self.count = 0
        self._shape, self._dtype = shape, dtype
        self._file: BinaryIO = path.open("wb", buffering=1 << 20)
        self._hash = hashlib.sha256()
        self._header()
        self._start = self._file.tell()

    def _header(self) -> None:
        # NumPy leaves room in the header for the first axis to grow
        npy.write_array_header_1_0(
            self._file,
            {
                "descr": npy.dtype_to_descr(self._dtype),
                "fortran_order": False,
                "shape": (self.count, *self._shape),
            },
        )

    def append(self, elements: NDArray[Any]) -> None:
        """Add elements, [n, *shape]."""
        block = np.ascontiguousarray(elements, self._dtype)
        if block.shape[1:] != self._shape:
            raise ValueError(f"{block.shape[1:]} is not {self._shape}")
        data = block.data.cast("B")
        self._file.write(data)
        self._hash.update(data)
        self.count += len(block)

    def close(self) -> str:
        """Finish the file; returns the SHA-256 of its data (the header is left out)."""
        self._file.seek(0)
        self._header()
        if self._file.tell() != self._start:
            raise RuntimeError("the header of a .npy file changed its length")
        self._file.close()
        return self._hash.hexdigest()


class ShardWriter:
    """Writes subsequences into shards of a given number of them."""

    def __init__(self, folder: Path, *, frames: int, dim: int, per_shard: int, dtype: str) -> None:
        self.folder = folder
        self.shards: list[dict[str, Any]] = []
        """Descriptions of the finished shards, for meta.json."""
        self._frames, self._dim, self._per_shard = frames, dim, per_shard
        self._dtype = np.dtype(dtype)
        self._files: tuple[ArrayFile, ArrayFile] | None = None

    def append(self, features: NDArray[np.float32], labels: NDArray[np.int32]) -> None:
        """Add subsequences: [n, frames, dim] and [n, frames]."""
        while len(labels):
            files = self._files or self._open()
            room = self._per_shard - files[0].count
            files[0].append(features[:room])
            files[1].append(labels[:room])
            features, labels = features[room:], labels[room:]
            if files[0].count == self._per_shard:
                self.close()

    def _open(self) -> tuple[ArrayFile, ArrayFile]:
        number = f"{len(self.shards):04}"
        self._files = (
            ArrayFile(
                self.folder / f"features.{number}.npy", (self._frames, self._dim), self._dtype
            ),
            ArrayFile(self.folder / f"labels.{number}.npy", (self._frames,), np.dtype(np.int32)),
        )
        return self._files

    def close(self) -> None:
        """Finish the open shard."""
        if self._files is None:
            return
        features, labels = self._files
        self._files = None
        self.shards.append(
            {
                "features": features.path.name,
                "labels": labels.path.name,
                "subsequences": features.count,
                "features_sha256": features.close(),
                "labels_sha256": labels.close(),
            }
        )
