"""Small graphs with scores, and all their paths: what a search is compared with."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from hadpsgd.graph.arrays import ARC, Arrays, assemble

Scores = NDArray[np.float32]


@st.composite
def problems(draw: st.DrawFn) -> tuple[Arrays, list[Scores]]:
    """A small graph of two pdfs, its empty arcs without cycles, and scores of three utterances."""
    size = draw(st.integers(2, 5))
    cost = st.integers(-8, 24).map(lambda n: n / 8)
    rows, sources = [], []
    for _ in range(draw(st.integers(2, 10))):
        source, target = draw(st.integers(0, size - 1)), draw(st.integers(0, size - 1))
        label = draw(st.integers(1, 2)) if target <= source else draw(st.integers(0, 2))
        rows.append((label, draw(st.integers(0, 2)), draw(cost), target))
        sources.append(source)
    final = np.full(size, np.inf, np.float32)
    final[draw(st.integers(0, size - 1))] = draw(cost)
    graph = assemble(0, final, np.array(sources), np.array(rows, ARC))
    lengths = [draw(st.integers(1, 4)) for _ in range(3)]
    numbers = [draw(st.lists(cost, min_size=2 * n, max_size=2 * n)) for n in lengths]
    return graph, [-np.array(n, np.float32).reshape(-1, 2) for n in numbers]


Ids = tuple[int, ...]
Walk = tuple[Ids, Ids, float]


def walks(graph: Arrays, scores: Scores) -> tuple[list[Walk], bool]:
    """(labels, words, cost) of all paths that consume an utterance; whether they end anywhere."""
    found: list[tuple[Walk, float]] = []

    def walk(
        state: int, time: int, labels: tuple[int, ...], words: tuple[int, ...], cost: float
    ) -> None:
        if time == len(scores):
            found.append(((labels, words, cost), float(graph.final[state])))
        for arc in graph.arcs[graph.first[state] : graph.first[state + 1]]:
            label, word = int(arc["ilabel"]), int(arc["olabel"])
            if label and time == len(scores):
                continue
            price = float(arc["weight"]) - (float(scores[time, label - 1]) if label else 0.0)
            walk(
                int(arc["next"]),
                time + bool(label),
                labels + ((label,) if label else ()),
                words + ((word,) if word else ()),
                cost + price,
            )

    walk(graph.start, 0, (), (), 0.0)
    ended = [((labels, words, cost + end)) for (labels, words, cost), end in found if end < np.inf]
    return (ended, False) if ended else ([path for path, _ in found], True)
