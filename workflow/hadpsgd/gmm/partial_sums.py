"""Sums over a data set that each process keeps over a share of it, added up once a pass.

The data are cut into `SHARES` shares whatever the number of processes. The sums of a share are
kept by the process that works on it, chunk after chunk, then written to a scratch file; the parent
adds the files up in the order of the shares. So the bits of a result do not depend on the number of
processes, and the parent works per share, not per chunk or utterance.

Statistics of 200,000 Gaussians of 40 dimensions take 130 MB: each process holds them once, the
parent twice, and at most 3 shares for each process (64 in all) wait on disk: with 16 processes
2.3 GB of memory and up to 6.2 GB of scratch space. More than 64 processes have nothing to do.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from hadpsgd.files import explain_os_errors
from hadpsgd.gmm.workspace import Chunk

SHARES = 64
"""Shares of a data set; where it has fewer chunks each is one."""


class Summable(Protocol):
    """Sums that others can be added to, in place."""

    def __iadd__(self, other: Any) -> Self:
        """Add."""
        ...


Sums = TypeVar("Sums", bound=Summable)
Adder = Callable[[Chunk, Sums], object]
"""Adds what it makes of a chunk to sums, in place."""


def shares(chunks: Sequence[Chunk], count: int = SHARES) -> list[Sequence[Chunk]]:
    """Consecutive chunks in at most `count` shares whose lengths differ by one at most."""
    count = min(count, len(chunks))
    bounds = [len(chunks) * number // count for number in range(count + 1)] if count else [0]
    return [chunks[first:last] for first, last in pairwise(bounds)]


def keeper(
    zero: Callable[[], Sums], make: Callable[[], Adder[Sums]], folder: Path
) -> Callable[[Sequence[Chunk]], Path]:
    """What a process makes of a share: a file of its sums in `folder`."""
    add = make()

    def keep(share: Sequence[Chunk]) -> Path:
        sums = zero()
        for chunk in share:
            add(chunk, sums)
        path = folder / f"sums.{share[0].first}"
        with explain_os_errors(folder), path.open("wb") as stream:
            # arrays go to the file without a copy in memory
            pickle.dump(sums, stream, pickle.HIGHEST_PROTOCOL)
        return path

    return keep


def take(path: Path) -> Any:
    """The sums that a file holds; it is removed."""
    with path.open("rb") as stream:
        sums = pickle.load(stream)
    path.unlink()
    return sums
