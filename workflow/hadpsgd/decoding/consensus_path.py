"""What minimum Bayes risk decoding says, as a path with its times."""

from __future__ import annotations

from collections.abc import Collection

from hadpsgd.decoding.confidence import confidences
from hadpsgd.decoding.consensus import Consensus, consensus
from hadpsgd.decoding.lattice import Lattice, Path, Scaling, best_paths
from hadpsgd.decoding.nearest import nearest_path


def consensus_path(
    lattice: Lattice, scaling: Scaling, silent: Collection[int]
) -> tuple[Path, list[float] | None]:
    """Words of least expected errors, on the best path that has them or comes nearest to it; and
    how probable each is (1 for silent ones).

    A lattice of a single path has that one and no probabilities.
    """
    path = best_paths(lattice, [scaling])[0]
    if confidences(lattice, path, scaling) is None:
        return path, None
    return with_times(lattice, path, consensus(lattice, scaling, silent), scaling, silent)


def with_times(
    lattice: Lattice, path: Path, found: Consensus, scaling: Scaling, silent: Collection[int]
) -> tuple[Path, list[float]]:
    """Words on the lattice's best path, if it has them, or on the one that comes nearest; and how
    probable each is (1 for silent ones)."""
    if found.words != tuple(word for word in path.words.tolist() if word not in silent):
        path = nearest_path(lattice, found.words, scaling, silent)
    sure = iter(found.confidences)
    return path, [1.0 if word in silent else next(sure) for word in path.words.tolist()]
