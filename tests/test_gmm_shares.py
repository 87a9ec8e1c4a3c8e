"""Statistics kept by each process over a share of the data: the same bits for any number of them.

Here a chunk is one utterance, so that there are more chunks than shares.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from functools import partial, partialmethod
from pathlib import Path

import numpy as np
import pytest
from gmm_toy import Toy, toy

from hadpsgd.gmm import em, partial_sums
from hadpsgd.gmm.collect import lda_sums, mllt_sums, tree_statistics
from hadpsgd.gmm.context_stats import Context
from hadpsgd.gmm.em import Passes
from hadpsgd.gmm.pipeline import Pipeline
from hadpsgd.gmm.statistics import accumulate
from hadpsgd.gmm.training_graph import Graph
from hadpsgd.gmm.workspace import Chunk, Workspace

DIM, FRAMES, COUNT, SHARES = 5, 60, 10, 4
WORK: dict[str, Callable[[Passes, Toy], object]] = {
    "accumulate": lambda passes, small: passes.accumulate(small.model),
    "tree": lambda passes, small: tree_statistics(passes, small.model.transitions, Context()),
    "lda": lambda passes, small: lda_sums(passes, small.model.transitions, ()),
    "mllt": lambda passes, small: mllt_sums(passes, small.model, ()),
}


@pytest.fixture
def small() -> Toy:
    return toy(np.random.default_rng(1).normal(size=(4, 3, DIM)))


@pytest.fixture
def space(small: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    """Utterances of one phone each."""
    random = np.random.default_rng(2)
    monkeypatch.setattr(Workspace, "chunks", partialmethod(Workspace.chunks, frames=FRAMES))
    with Workspace(tmp_path) as made:
        made.fill(
            (f"u{u}", "s", random.normal(size=(FRAMES, DIM)).astype(np.float32))
            for u in range(COUNT)
        )
        for u, chunk in enumerate(made.chunks()):
            ids = small.first_ids(1 + u % small.phones)
            made.store_alignment(chunk, np.repeat(ids, FRAMES // 3))
        yield made


def test_shares_hold_every_chunk_once_in_order() -> None:
    for total in (0, 1, 63, 64, 65, 200, 2700):
        chunks = [Chunk(number, number + 1) for number in range(total)]
        found = partial_sums.shares(chunks)
        assert [chunk for share in found for chunk in share] == chunks
        assert len(found) == min(total, 64)
        sizes = {len(share) for share in found}
        assert not sizes or max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("name", WORK)
def test_processes_do_not_change_a_bit(
    name: str, small: Toy, space: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(em, "shares", partial(partial_sums.shares, count=SHARES))
    taken: list[Path] = []

    def take(path: Path) -> object:
        taken.append(path)
        return partial_sums.take(path)

    monkeypatch.setattr(em, "take", take)
    found = [WORK[name](Passes(space, Pipeline(0), jobs), small) for jobs in (1, 2)]
    assert pickle.dumps(found[0]) == pickle.dumps(found[1])
    assert len(taken) == 2 * SHARES  # what comes back is counted in shares, not in chunks
    assert not list(space.folder.glob("sums.*"))


def test_sums_are_those_of_the_chunks(small: Toy, space: Workspace) -> None:
    """A share of one chunk each: to the bit what adding chunk by chunk gives."""
    model = small.model
    parts = [
        accumulate(model.mixtures, space.frames(chunk), space.alignment(chunk),
                   model.transitions.pdf)
        for chunk in space.chunks()
    ]  # fmt: skip
    expected = parts[0]
    for part in parts[1:]:
        expected += part
    found = Passes(space, Pipeline(0), 1).accumulate(model)
    assert found.frames == COUNT * FRAMES
    assert found.likelihood == expected.likelihood
    for name in ("occupancy", "first", "second", "ids"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_graphs_are_stored_compressed(small: Toy, space: Workspace) -> None:
    """Whatever utterances are asked for come back as they were, from less space."""
    graphs = [small.graph(1 + u % small.phones) for u in range(COUNT)]
    graphs[3] = Graph(*(np.tile(part, 100) for part in _parts(graphs[3])))
    space.store_graphs(graphs)
    raw = sum(part.nbytes for graph in graphs for part in _parts(graph))
    assert (space.folder / "graphs").stat().st_size < raw / 2
    for chunk in (Chunk(0, COUNT), Chunk(2, 5), Chunk(9, 10)):
        found = space.graphs(chunk)
        for one, other in zip(found, graphs[chunk.first : chunk.last], strict=True):
            for part, wanted in zip(_parts(one), _parts(other), strict=True):
                np.testing.assert_array_equal(part, wanted)


def _parts(graph: Graph) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return graph.pdfs, graph.arcs, graph.ends
