"""Examples on disk: shards of rows, the table of i-vectors, and their description.

`examples.NNNN.npy` is an array of rows as `Layout.row` says; `ivectors.npy` is [vectors, dim];
`pdf_counts.npy` is int64 [pdf-ids]; `scales.npy`, of 8-bit examples, float32 [shards, 2, features]
(offsets and steps). meta.json lists the files with the SHA-256 of their data; of `pdf_counts.npy`,
`scales.npy` and what else lies beside them with that of the whole file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from hadpsgd.egs.layout import Layout, Scales
from hadpsgd.files import sha256, write_text

FORMAT = 2
"""Version of the description in meta.json."""
TABLE = "ivectors.npy"
COUNTS = "pdf_counts.npy"
SCALES = "scales.npy"
_BLOCK = 1 << 16


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
        data = block.view(np.uint8).data
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


def write_shard(
    path: Path, rows: NDArray[np.void], order: NDArray[np.integer] | None = None
) -> dict[str, Any]:
    """Write rows [n] as they are, or in an order [n]; returns their description for meta.json."""
    file = ArrayFile(path, (), rows.dtype)
    for first in range(0, len(rows), _BLOCK):
        part = slice(first, first + _BLOCK)
        file.append(rows[part] if order is None else rows[order[part]])
    return {"examples": path.name, "subsequences": file.count, "sha256": file.close()}


def describe(
    folder: Path,
    layout: Layout,
    shards: Iterable[dict[str, Any]],
    pdf_counts: NDArray[np.int64],
    *,
    scales: Sequence[Scales] = (),
    beside: Iterable[str] = (),
    **more: Any,
) -> dict[str, Any]:
    """Write pdf_counts.npy and meta.json beside shards that lie there; returns the latter.

    `scales`: of each shard, [2, features], where they are in 8 bits; `beside`: names of other files
    there that belong to them.
    """
    shards = list(shards)
    np.save(folder / COUNTS, pdf_counts)
    if scales:
        np.save(folder / SCALES, np.stack(scales))
        beside = (SCALES, *beside)
    meta = {
        "format": FORMAT,
        **layout.description(),
        "dim": layout.dim,
        "streams": layout.dims,
        "num_pdfs": len(pdf_counts),
        "subsequences": sum(shard["subsequences"] for shard in shards),
        **more,
        "files": {name: sha256(folder / name) for name in (COUNTS, *beside)},
        "shards": shards,
    }
    write_text(folder / "meta.json", json.dumps(meta, indent=1) + "\n")
    return meta
