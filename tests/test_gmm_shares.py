"""Statistics kept by each process over a share of the data: the same bits for any number of them.

Here a chunk is one utterance, so that there are more chunks than shares.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial, partialmethod
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from gmm_toy import Toy, toy

from hadpsgd.gmm import adaptation, em, partial_sums
from hadpsgd.gmm.adaptation import Speakers
from hadpsgd.gmm.collect import adapt, lda_sums, mllt_sums, tree_statistics
from hadpsgd.gmm.compilation import compile_graphs
from hadpsgd.gmm.context_stats import Context
from hadpsgd.gmm.data import Lang
from hadpsgd.gmm.em import Passes
from hadpsgd.gmm.packed_graph import pack
from hadpsgd.gmm.phone_graph import PhoneGraph
from hadpsgd.gmm.pipeline import Pipeline
from hadpsgd.gmm.statistics import accumulate
from hadpsgd.gmm.training_graph import Graph, GraphCompiler
from hadpsgd.gmm.workspace import Chunk, Workspace

DIM, FRAMES, COUNT, SHARES = 5, 60, 10, 4
BY_SPEAKER, LEAST = (4, 3, 2, 1), 100.0
"""Utterances of each speaker, across the ends of shares too; the last has too few frames."""
WORK: dict[str, Callable[[Passes, Toy], object]] = {
    "accumulate": lambda passes, small: passes.accumulate(small.model),
    "tree": lambda passes, small: tree_statistics(passes, small.model.transitions, Context()),
    "lda": lambda passes, small: lda_sums(passes, small.model.transitions, ()),
    "mllt": lambda passes, small: mllt_sums(passes, small.model, ()),
    "fmllr": lambda passes, small: adapt(passes, small.model, (), LEAST),
}


@pytest.fixture
def small() -> Toy:
    return toy(np.random.default_rng(1).normal(size=(4, 3, DIM)))


@pytest.fixture
def space(small: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    """Utterances of one phone each."""
    speakers = [f"s{s}" for s, count in enumerate(BY_SPEAKER) for _ in range(count)]
    random = np.random.default_rng(2)
    monkeypatch.setattr(Workspace, "chunks", partialmethod(Workspace.chunks, frames=FRAMES))
    with Workspace(tmp_path) as made:
        made.fill(
            (f"u{u}", speakers[u], random.normal(size=(FRAMES, DIM)).astype(np.float32))
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
    monkeypatch.setattr(adaptation, "ENOUGH", 2)
    taken: list[Path] = []

    def take(path: Path) -> object:
        taken.append(path)
        return partial_sums.take(path)

    monkeypatch.setattr(em, "take", take)
    found = [WORK[name](Passes(space, Pipeline(0), jobs), small) for jobs in (1, 2)]
    assert pickle.dumps(found[0]) == pickle.dumps(found[1])
    assert len(taken) == 2 * SHARES  # what comes back is counted in shares, not in chunks
    assert not list(space.folder.glob("sums.*"))


def test_speakers_are_estimated_where_their_sums_are(
    small: Toy, space: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two at a time; shares are u0-1, u2-4, u5-6 and u7-9: what crosses their ends is left."""
    monkeypatch.setattr(adaptation, "ENOUGH", 2)
    monkeypatch.setattr(em, "shares", partial(partial_sums.shares, count=SHARES))
    settled: list[set[str]] = []

    def take(path: Path) -> Speakers:
        speakers: Speakers = partial_sums.take(path)
        settled.append(set(speakers.found.counts))
        return speakers

    monkeypatch.setattr(em, "take", take)
    found = adapt(Passes(space, Pipeline(0), 1), small.model, (), LEAST)
    assert settled == [set(), set(), set(), {"s2", "s3"}]
    assert found.gains.keys() == {"s0", "s1", "s2"} and found.few == ["s3"]
    assert found.counts == {f"s{s}": count * FRAMES for s, count in enumerate(BY_SPEAKER)}
    # one share of all: every speaker's sums come together in one place
    monkeypatch.setattr(em, "shares", partial(partial_sums.shares, count=1))
    together = adapt(Passes(space, Pipeline(0), 1), small.model, (), LEAST)
    for speaker, transform in together.transforms.items():
        np.testing.assert_allclose(found.transforms[speaker], transform, atol=1e-6)


def test_processes_compile_the_same_graphs(small: Toy, space: Workspace) -> None:
    words = [[1 + u % small.phones, 1 + (u + 1) % small.phones] for u in range(COUNT)]
    stored = []
    for jobs in (1, 2):
        passes = Passes(space, Pipeline(0), jobs)
        compile_graphs(passes, words, spelled(), small.tree, small.model.transitions)
        stored.append((space.folder / "graphs").read_bytes())
    assert stored[0] == stored[1] and len(stored[0]) == space.graph_bytes
    compiler = GraphCompiler(spelled().lexicon, small.tree, small.model.transitions)
    for ids, found in zip(words, space.graphs(Chunk(0, COUNT)), strict=True):
        for one, other in zip(_parts(compiler(ids)), _parts(found), strict=True):
            np.testing.assert_array_equal(one, other)


def spelled() -> Lang:
    """Words are phones."""

    def graph(words: Sequence[int]) -> PhoneGraph:
        after = tuple(((next_, 0.0),) for next_ in range(1, len(words)))
        ends = (*(math.inf for _ in after), 0.0)
        return PhoneGraph(tuple(words), ((0, 0.0),), (*after, ()), ends)

    return cast(Lang, SimpleNamespace(lexicon=SimpleNamespace(graph=graph)))


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
    space.store_packed(map(pack, graphs))
    raw = sum(part.nbytes for graph in graphs for part in _parts(graph))
    assert (space.folder / "graphs").stat().st_size < raw / 2
    for chunk in (Chunk(0, COUNT), Chunk(2, 5), Chunk(9, 10)):
        found = space.graphs(chunk)
        for one, other in zip(found, graphs[chunk.first : chunk.last], strict=True):
            for part, wanted in zip(_parts(one), _parts(other), strict=True):
                np.testing.assert_array_equal(part, wanted)


def _parts(graph: Graph) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return graph.pdfs, graph.arcs, graph.ends
