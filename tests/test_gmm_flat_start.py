"""The first alignment of all: frames spread over a random path of each utterance's graph."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from test_gmm_training import random_graph

from hadpsgd.gmm.flat_start import _spreader

FRAMES = 60


def spread(names: list[str], seed: int) -> dict[str, NDArray[np.int32]]:
    """The same graph for all, so that they differ by what is drawn alone."""
    graph = random_graph(np.random.default_rng(3), 20)
    stored: list[NDArray[np.int32]] = []
    space: Any = SimpleNamespace(
        names=names,
        bounds=lambda _: np.arange(len(names) + 1) * FRAMES,
        graphs=lambda _: [graph] * len(names),
        store_alignment=lambda _, ids: stored.append(ids),
    )
    chunk: Any = SimpleNamespace(first=0, last=len(names))
    assert _spreader(space, seed)(chunk) == 0
    return dict(zip(names, stored[0].reshape(-1, FRAMES), strict=True))


def test_every_utterance_has_a_path_of_its_own_whatever_others_there_are() -> None:
    names = [f"u{number}" for number in range(20)]
    found = spread(names, 1)
    assert len({ids.tobytes() for ids in found.values()}) > 10
    fewer = spread(names[::-3], 1)
    assert all(np.array_equal(ids, found[name]) for name, ids in fewer.items())
    other = spread(names, 2)
    assert sum(np.array_equal(other[name], found[name]) for name in names) < 5
