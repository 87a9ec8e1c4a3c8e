"""The i-vectors of examples: one table, of which examples hold row numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hadpsgd.egs.shards import TABLE, ArrayFile
from hadpsgd.errors import UserError
from hadpsgd.features.fusion import Fusion
from hadpsgd.features.ivector.stream import IvectorStream

Firsts = dict[tuple[bool, str], int]
"""First row of a key's vectors; of the copies at other speeds, or not."""


def ivectors_of(fusion: Fusion) -> tuple[str, IvectorStream] | None:
    """Name and stream of the i-vectors in the input, if it has them."""
    found = [(n, s) for n, s in fusion.streams.items() if isinstance(s, IvectorStream)]
    return found[0] if found else None


def write_table(
    folder: Path, fusion: Fusion, copies: Fusion | None, dtype: np.dtype
) -> tuple[Firsts, dict[str, Any] | None]:
    """Write all vectors of a data set and its copies; where each key's are, and a description.

    Raises:
        UserError: vectors of different dimensions.
    """
    firsts: Firsts = {}
    file: ArrayFile | None = None
    for copied, streams in ((False, fusion), (True, copies)):
        found = ivectors_of(streams) if streams is not None else None
        if found is None:
            continue
        dim = fusion.dims[found[0]]
        for key, vectors in found[1].vectors():
            if vectors.shape[1] != dim:
                raise UserError(
                    f"an i-vector of {vectors.shape[1]} values, and {dim} before", where=key
                )
            file = file or ArrayFile(folder / TABLE, (dim,), dtype)
            firsts[copied, key] = file.count
            file.append(vectors)
    if file is None:
        return firsts, None
    return firsts, {"vectors": file.count, "dim": dim, "sha256": file.close()}


def numbers(
    firsts: Firsts, places: tuple[str, NDArray[np.int64]], *, copied: bool
) -> NDArray[np.int64]:
    """Rows of the table that an utterance's frames have, [frames] or [1]."""
    key, within = places
    return firsts[copied, key] + within
