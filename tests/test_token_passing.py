"""The search over arrays: against kaldi-decoder, and against all paths of small graphs."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import kaldi_decoder
import kaldifst
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from search_problems import Ids, Scores, Walk, problems, walks

from hadpsgd import kaldi_io
from hadpsgd.decoding import lattice_io
from hadpsgd.decoding.assembly import lattices
from hadpsgd.decoding.lanes import Lanes
from hadpsgd.decoding.lattice import Lattice, Scaling, best_paths
from hadpsgd.decoding.nbest import nbest
from hadpsgd.decoding.pruning import Pruner
from hadpsgd.decoding.search_graph import SearchGraph
from hadpsgd.decoding.token_passing import Beams, TokenPassing
from hadpsgd.errors import UserError
from hadpsgd.gmm import transition_model
from hadpsgd.graph import arrays
from hadpsgd.graph.arrays import ARC, Arrays, assemble

SCALE = np.float32(0.0833)


def search(
    graph: SearchGraph,
    columns: NDArray[np.int64],
    scores: list[Scores],
    beams: Beams,
    every: int,
    together: int = 3,
) -> tuple[list[Lattice | None], list[bool]]:
    """Lattices of utterances, so many searched together, pruned every few frames; whether they
    reached no final state."""
    passing = TokenPassing(graph, columns, Lanes(scores, count=together), 1.0, beams)
    pruner = Pruner(graph, beams.lattice_beam)
    while passing.advance():
        time = len(passing.frames) - 1
        if time % every == 0:
            pruner.prune(passing.frames, max(0, time - 2 * every))
    pruner.prune(passing.frames)
    return list(lattices(passing)), [n in pruner.partial for n in range(len(scores))]


def lattice_walks(lat: Lattice) -> list[Walk]:
    """The same of a lattice."""
    found: list[Walk] = []

    def walk(state: int, labels: Ids, words: Ids, cost: float) -> None:
        if np.isfinite(lat.final[state, 0]):
            found.append((labels, words, cost + float(lat.final[state, 0])))
        for arc in lat.arcs[lat.first[state] : lat.first[state + 1]]:
            label, word = int(arc["ilabel"]), int(arc["olabel"])
            walk(
                int(arc["next"]),
                labels + ((label,) if label else ()),
                words + ((word,) if word else ()),
                cost + float(arc["graph"]) + float(arc["acoustic"]),
            )

    walk(0, (), (), 0.0)
    return found


def rounded(paths: list[Walk]) -> list[Walk]:
    return sorted((labels, words, round(cost, 3)) for labels, words, cost in paths)


def columns_of(graph: SearchGraph) -> NDArray[np.int64]:
    return graph.emitting.label.astype(np.int64) - 1


@given(problems(), st.sampled_from([1, 2, 100]))
@settings(max_examples=150)
def test_a_lattice_holds_all_paths_within_its_beam(
    problem: tuple[Arrays, list[Scores]], every: int
) -> None:
    graph, scores = problem
    laid = SearchGraph.of(graph)
    for beam in (1000.0, 2.0):
        beams = Beams(beam=1e9, lattice_beam=beam, max_active=10**6)
        made, partial = search(laid, columns_of(laid), scores, beams, every)
        for lat, matrix, ends_anywhere in zip(made, scores, partial, strict=True):
            wanted, anywhere = walks(graph, matrix)
            if not wanted:
                assert lat is None
                continue
            assert lat is not None
            assert bool(ends_anywhere) == anywhere
            assert np.all(lat.arcs["next"] > lat.sources)
            got = rounded(lattice_walks(lat))
            if beam > 100:
                assert got == rounded(wanted)
            else:  # links are pruned, not paths: all within the beam are there, maybe others
                best = min(cost for *_, cost in wanted)
                near = rounded([path for path in wanted if path[2] <= best + beam - 1e-3])
                assert set(near) <= set(got) <= set(rounded(wanted))


@given(problems())
@settings(max_examples=50)
def test_ways_that_are_not_listed_are_found(problem: tuple[Arrays, list[Scores]]) -> None:
    """Of graphs where ways along empty arcs are very many, only single arcs are listed."""
    graph, beams = SearchGraph.of(problem[0]), Beams(beam=4.0, lattice_beam=2.0, max_active=10**6)
    with mock.patch("hadpsgd.decoding.search_graph._STEPS", 0):
        short = SearchGraph.of(problem[0])
    assert len(short.ways.next) == len(short.empty.next) <= len(graph.ways.next)
    made, other = (search(each, columns_of(each), problem[1], beams, 2) for each in (graph, short))
    assert made[1] == other[1]
    for one, two in zip(made[0], other[0], strict=True):
        assert (one is None) == (two is None)
        if one is not None and two is not None:
            assert rounded(lattice_walks(one)) == rounded(lattice_walks(two))


@given(problems(), st.integers(1, 3))
@settings(max_examples=50)
def test_utterances_of_a_batch_do_not_touch_one_another(
    problem: tuple[Arrays, list[Scores]], together: int
) -> None:
    """Side by side or one after another."""
    graph = SearchGraph.of(problem[0])
    beams = Beams(beam=3.0, lattice_beam=2.0, max_active=3)
    made, partial = search(graph, columns_of(graph), problem[1], beams, 2, together)
    for lat, cut, scores in zip(made, partial, problem[1], strict=True):
        (alone,), (ends_anywhere,) = search(graph, columns_of(graph), [scores], beams, 2)
        assert cut == ends_anywhere
        assert (lat is None) == (alone is None)
        if lat is not None and alone is not None:
            assert lat.arcs.tolist() == alone.arcs.tolist()
            assert lat.first.tolist() == alone.first.tolist()
            assert lat.final.tolist() == alone.final.tolist()


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(1, 5), st.integers(1, 200)
)
def test_lanes_are_never_empty_without_need(lengths: list[int], count: int, room: int) -> None:
    scores = [np.full((length, 1), number, np.float32) for number, length in enumerate(lengths)]
    lanes, read = Lanes(scores, count=count, room=4 * room), dict.fromkeys(range(len(lengths)), 0)
    lanes.enter(0)
    time = 0
    while lanes.going_on(time):
        running = (lanes.until > time).nonzero()[0]
        for lane, score in zip(
            running, lanes.at(time, running.copy(), np.zeros(len(running), np.int64)), strict=True
        ):
            assert score == lanes.number[lane]
            read[int(score)] += 1
        time += 1
        entered = set(lanes.enter(time).tolist())
        inside = lanes.number[(lanes.until >= time) & (lanes.number >= 0)].tolist()
        assert entered <= set(range(count))
        assert len(inside) == 1 or sum(lengths[number] for number in inside) <= room
        if lanes.utterances < len(lengths) and len(inside) < count:  # one more would be too much
            upcoming = lengths[lanes.utterances]
            assert inside
            assert sum(lengths[number] for number in inside) + upcoming > room or not len(entered)
    assert list(read.values()) == lengths
    assert lanes.utterances == len(lengths)


@pytest.fixture(scope="module")
def golden(shared: Path) -> tuple[Path, NDArray[np.int32], list[Scores]]:
    """Kaldi's graph, pdf of each transition-id, scaled scores of 20 utterances."""
    kaldi = shared / "kaldi_an4"
    pdf = transition_model.read(kaldi / "exp/tri3b/final.mdl").pdf
    rows = kaldi_io.iterate(kaldi / "golden/gmm_loglikes_test20.ark.gz")
    return kaldi / "exp/tri3b/graph/HCLG.fst", pdf, [m * SCALE for _, m in rows]


def test_lattices_of_kaldi_decoder(
    golden: tuple[Path, NDArray[np.int32], list[Scores]], tmp_path: Path
) -> None:
    """Without a limit on active states: the lattices of its LatticeSimpleDecoder."""
    path, pdf, scores = golden
    graph = SearchGraph.of(arrays.read(path))
    columns = pdf[graph.emitting.label].astype(np.int64)
    made, partial = search(
        graph, columns, scores[:8], Beams(beam=13.0, lattice_beam=6.0, max_active=10**9), 50, 8
    )
    assert not any(partial)
    fst = kaldifst.StdConstFst.read(str(path))
    config = kaldi_decoder.LatticeSimpleDecoderConfig(beam=13.0, lattice_beam=6.0)
    for lat, matrix in zip(made, scores, strict=False):
        decoder = kaldi_decoder.LatticeSimpleDecoder(fst, config)
        decoder.decode(kaldi_decoder.DecodableCtc(matrix.take(pdf[1:], axis=1)))
        decoder.get_raw_lattice()[1].write(str(tmp_path / "lattice"))
        theirs = lattice_io.parse((tmp_path / "lattice").read_bytes())
        assert lat is not None
        # a link more or less where a cost lies at the beam's very edge
        assert len(lat.arcs) == pytest.approx(len(theirs.arcs), rel=0.005, abs=2)
        assert lat.num_states == pytest.approx(theirs.num_states, rel=0.005, abs=2)
        ours, other = (
            nbest(one, Scaling(acoustic_scale=1.0), count=5, beam=4.0) for one in (lat, theirs)
        )
        assert [h.words for h in ours] == [h.words for h in other]
        assert [h.cost for h in ours] == pytest.approx([h.cost for h in other], abs=0.02)


def test_active_states_are_limited(golden: tuple[Path, NDArray[np.int32], list[Scores]]) -> None:
    path, pdf, scores = golden
    graph = SearchGraph.of(arrays.read(path))
    columns = pdf[graph.emitting.label].astype(np.int64)
    flat = [np.zeros_like(matrix[:60]) for matrix in scores[:3]]  # scores that say nothing
    for limit in (200, 1000):
        lanes = Lanes(flat, count=len(flat))
        passing = TokenPassing(
            graph, columns, lanes, 1.0, Beams(beam=13.0, lattice_beam=6.0, max_active=limit)
        )
        for _ in range(60):
            passing.advance()
            links = passing.frames[-2].emitting
            assert links is not None
            going = np.unique(links.source)
            owners = np.bincount(passing.frames[-2].utterance[going], minlength=3)
            assert owners.max() <= limit
    made, _ = search(
        graph, columns, scores[:4], Beams(beam=13.0, lattice_beam=6.0, max_active=1000), 50
    )
    wide, _ = search(
        graph, columns, scores[:4], Beams(beam=13.0, lattice_beam=6.0, max_active=10**9), 50
    )
    for a, b in zip(made, wide, strict=True):
        assert a is not None
        assert b is not None
        one, two = (best_paths(lat, [Scaling(acoustic_scale=1.0)])[0] for lat in (a, b))
        assert one.words.tolist() == two.words.tolist()


def tree_of(first: list[float], second: list[float]) -> Arrays:
    """From the start an arc to a state of its own for each first cost; from each of these one to
    the end for each second cost."""
    middle = range(1, len(first) + 1)
    end = len(first) + 1
    rows = [(1, 0, cost, state) for cost, state in zip(first, middle, strict=True)]
    rows += [(1, 1 + n, cost, end) for _ in middle for n, cost in enumerate(second)]
    sources = [0] * len(first) + [state for state in middle for _ in second]
    final = np.full(end + 1, np.inf, np.float32)
    final[end] = 0.0
    return assemble(0, final, np.array(sources), np.array(rows, ARC))


@pytest.mark.parametrize(
    ("max_active", "beam", "wanted"),
    [  # Kaldi's GetCutoff: the cost of the first token too many, less the best, and half a unit
        (2, 10.0, {0.0, 1.0, 2.0, 2.4}),
        (1, 10.0, {0.0, 1.0, 2.0}),
        (2, 2.2, {0.0, 1.0, 2.0}),  # never more than the beam
        (9, 10.0, {0.0, 1.0, 2.0, 2.4, 2.6, 6.0}),
    ],
)
def test_the_beam_after_a_cut_is_kaldis(max_active: int, beam: float, wanted: set[float]) -> None:
    """Tokens cost 0, 1.5, 2 and 3 after the first frame; what leaves the best one is listed."""
    first, second = [0.0, 1.5, 2.0, 3.0], [0.0, 1.0, 2.0, 2.4, 2.6, 6.0]
    graph = SearchGraph.of(tree_of(first, second))
    scores = [np.zeros((2, 1), np.float32)]
    passing = TokenPassing(graph, columns_of(graph), Lanes(scores, count=1), 1.0,
                           Beams(beam=beam, lattice_beam=100.0, max_active=max_active))  # fmt: skip
    passing.advance()
    passing.advance()
    links = passing.frames[1].emitting
    assert links is not None
    cost = graph.emitting.cost[links.arc]
    assert {round(float(c), 3) for c in cost[links.source == 0]} == wanted


@pytest.mark.parametrize(("cost", "message"), [(0.5, "cycle without speech"), (5.0, "")])
def test_cycles_without_speech(cost: float, message: str) -> None:
    """A cheap one is refused, as no lattice can hold it; a dear one is in none."""
    rows = np.array([(1, 1, 0.0, 1), (0, 2, cost / 2, 2), (0, 3, cost / 2, 1)], ARC)
    final = np.array([np.inf, 0.0, np.inf], np.float32)
    graph = SearchGraph.of(assemble(0, final, np.array([0, 1, 2]), rows))
    scores = [np.zeros((1, 1), np.float32)]
    columns = np.zeros(1, np.int64)
    beams = Beams(beam=10.0, lattice_beam=2.0, max_active=100)
    if message:
        with pytest.raises(UserError, match=message):
            search(graph, columns, scores, beams, 50)
        return
    [lat], _ = search(graph, columns, scores, beams, 50)
    assert lat is not None and best_paths(lat, [Scaling(acoustic_scale=1.0)])[0].words.tolist() == [
        1
    ]
