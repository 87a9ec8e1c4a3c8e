"""Small lattices, and all their paths: what is read out of lattices is compared with them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from hypothesis import strategies as st

from hadpsgd.decoding.lattice import ARC, Lattice, Scaling


@st.composite
def lattices(draw: st.DrawFn) -> Lattice:
    """A small lattice; every state can be reached and reaches the last one, which is final."""
    size = draw(st.integers(2, 7))
    rows = [(i, i + 1) for i in range(size - 1)]
    for _ in range(draw(st.integers(0, 12))):
        low = draw(st.integers(0, size - 2))
        rows.append((low, draw(st.integers(low + 1, size - 1))))
    rows.sort()
    arcs = np.zeros(len(rows), ARC)
    number = st.integers(-16, 32).map(lambda n: n / 8)
    for arc, (_, target) in zip(arcs, rows, strict=True):
        values = draw(st.tuples(st.integers(0, 3), st.integers(0, 2), number, number))
        arc["ilabel"], arc["olabel"], arc["graph"], arc["acoustic"] = values
        arc["next"] = target
    final = np.full((size, 2), np.inf, np.float32)
    final[-1] = draw(number), 0.0
    if draw(st.booleans()):
        final[draw(st.integers(0, size - 1))] = draw(number), draw(number)
    counts = np.bincount([low for low, _ in rows], minlength=size)
    return Lattice(final, np.concatenate([[0], np.cumsum(counts)]), arcs)


def penalties(words: Iterable[int], scaling: Scaling) -> float:
    """Of all words of a path."""
    return scaling.word_penalty * len([word for word in words if word not in scaling.inside])


def paths_of(lat: Lattice, scaling: Scaling) -> list[tuple[float, list[int]]]:
    """(cost, words) of every path, by walking all."""
    found = []

    def walk(state: int, cost: float, words: list[int]) -> None:
        if np.isfinite(lat.final[state, 0]):
            graph, acoustic = map(float, lat.final[state])
            found.append((cost + graph + scaling.acoustic_scale * acoustic, words))
        for arc in lat.arcs[lat.first[state] : lat.first[state + 1]]:
            spoken = [int(arc["olabel"])] if arc["olabel"] else []
            price = float(arc["graph"]) + scaling.acoustic_scale * float(arc["acoustic"])
            price += penalties(spoken, scaling)
            walk(int(arc["next"]), cost + price, words + spoken)

    walk(0, 0.0, [])
    return found


SCALINGS = [
    Scaling(acoustic_scale=1.0),
    Scaling(acoustic_scale=0.1),
    Scaling(acoustic_scale=0.5, word_penalty=1.0),
    Scaling(acoustic_scale=2.0, word_penalty=-0.5),
    Scaling(acoustic_scale=0.5, word_penalty=1.0, inside=frozenset({2})),
]


def two_words(graph: list[float]) -> Lattice:
    """Frames 0 and 1 say a word each; word 1 or 2 first, then word 3."""
    final = np.array([[np.inf] * 2, [np.inf] * 2, [0, 0]], np.float32)
    rows = [(1, i + 1, g, 0.0, 1) for i, g in enumerate(graph)] + [(1, 3, 0.0, 0.0, 2)]
    first = np.array([0, len(graph), len(graph) + 1, len(graph) + 1])
    return Lattice(final, first, np.array(rows, ARC))
