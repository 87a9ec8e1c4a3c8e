"""Error pages: costs of references against all paths, counts that add up, audio of the segment."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from corpus_data import make_data
from hypothesis import given, settings
from hypothesis import strategies as st
from lattice_problems import penalties
from search_problems import Scores, problems, walks

from hadpsgd import kaldi_io
from hadpsgd.config.decoding import Decoding
from hadpsgd.corpus.datadir import DataDir, Utterance
from hadpsgd.corpus.lang.directory import read_symbols
from hadpsgd.corpus.stm import Segment
from hadpsgd.decoding.lattice import Lattice, Scaling, best_paths
from hadpsgd.decoding.reference import ReferenceGraph
from hadpsgd.decoding.said import Said, Vocabulary
from hadpsgd.decoding.scores import LongScores, scores_of
from hadpsgd.decoding.search import Searcher
from hadpsgd.errors import UserError
from hadpsgd.gmm import transition_model
from hadpsgd.graph import arrays
from hadpsgd.graph.arrays import ARC, Arrays, assemble
from hadpsgd.graph.transitions import Transitions
from hadpsgd.reports.causes import (
    CAUSES,
    MODEL,
    NO_PATH,
    SEARCH,
    UNKNOWN,
    UNTESTED,
    Cause,
    Judge,
    causes,
    utterances_of,
)
from hadpsgd.reports.errors import SetErrors
from hadpsgd.reports.stretches import RECOGNISED
from hadpsgd.scoring.align import Edit
from hadpsgd.scoring.filters import Filters
from hadpsgd.scoring.formats import TimedWord
from hadpsgd.scoring.hypotheses import Words
from hadpsgd.scoring.nist import Sentence

SCALE = 0.0833
_FLAGS = np.zeros(3, bool)
TWO_PDFS = Transitions(np.array([0, 0, 1], np.int32), np.zeros(3, np.int32), _FLAGS, _FLAGS)


def in_a_row(labels: list[int]) -> Said:
    """One label after another."""
    return Said(len(labels), tuple((i, i + 1, label) for i, label in enumerate(labels)))


def same(lattice: Lattice) -> Lattice:
    """A rescorer that changes nothing, so that its search must find what the other one does."""
    return lattice


@pytest.mark.parametrize("rescorer", [None, same])
@given(
    problems(),
    st.lists(st.lists(st.integers(1, 2), max_size=3), min_size=3, max_size=3),
    st.sampled_from([frozenset(), frozenset({2})]),
    st.sampled_from([0, 1 << 25]),
)
@settings(max_examples=80)
def test_the_best_path_of_given_words(
    rescorer: Any,
    problem: tuple[Arrays, list[Scores]],
    words: list[list[int]],
    inside: frozenset[int],
    room: int,
) -> None:
    """Of three utterances: the cheapest of all paths that say just these words, with room for few
    costs and for all."""
    graph, scores = problem
    scaling = Scaling(acoustic_scale=0.5, word_penalty=0.25, inside=inside)
    reference = ReferenceGraph(arrays.to_const(graph), TWO_PDFS, (), rescorer)
    with mock.patch("hadpsgd.decoding.exhaustive._KEPT", room):
        found = reference.best_paths([in_a_row(each) for each in words], scores, scaling)
    for said, matrix, path in zip(words, scores, found, strict=True):
        ended, partial = walks(graph, matrix * np.float32(0.5))
        costs = [c for _, spoken, c in ended if spoken == tuple(said) and not partial]
        if path is None:
            assert not costs
        else:
            assert path.words.tolist() == said and len(path.transitions) == len(matrix)
            paid = penalties(said, scaling)
            assert path.cost == pytest.approx(min(costs) + paid, abs=1e-4)
            assert path.cost == pytest.approx(path.graph + 0.5 * path.acoustic + paid, abs=1e-4)


@pytest.mark.parametrize("cost", [1.0, 0.0, -1.0])
def test_cycles_without_speech(cost: float) -> None:
    """One that costs less than nothing is refused."""
    rows = np.array([(1, 1, 0.0, 1), (0, 0, cost, 2), (0, 0, 0.0, 1), (0, 0, 3.0, 3)], ARC)
    final = np.array([np.inf, np.inf, np.inf, 0.0], np.float32)
    graph = assemble(0, final, np.array([0, 1, 2, 2]), rows)
    reference = ReferenceGraph(arrays.to_const(graph), TWO_PDFS, (), None)
    sought = [in_a_row([1])], [np.zeros((1, 2), np.float32)], Scaling(acoustic_scale=1.0)
    if cost < 0:
        with pytest.raises(UserError, match="cycle without speech"):
            reference.best_paths(*sought)
    else:
        [path] = reference.best_paths(*sought)
        assert path is not None
        assert path.cost == pytest.approx(cost + 3.0)


@given(problems(), st.lists(st.just(1), max_size=2))
@settings(max_examples=50)
def test_noise_may_stand_anywhere(problem: tuple[Arrays, list[Scores]], words: list[int]) -> None:
    graph, scores = problem
    reference = ReferenceGraph(arrays.to_fst(graph), TWO_PDFS, (2,), None)
    [path] = reference.best_paths([in_a_row(words)], scores[:1], Scaling(acoustic_scale=1.0))
    ended, partial = walks(graph, scores[0])
    costs = [c for _, said, c in ended if [w for w in said if w == 1] == words and not partial]
    assert (path is None) == (not costs)
    if path is not None:
        assert path.cost == pytest.approx(min(costs), abs=1e-4)


def ways(said: Said, place: int = 0) -> set[tuple[int, ...]]:
    """All rows of labels from a place to the end."""
    if place == said.end:
        return {()}
    steps = [(to, label) for at, to, label in said.arcs if at == place]
    return {(label, *rest) for to, label in steps for rest in ways(said, to)}


def test_words_are_said_in_all_their_pieces() -> None:
    pieces = {"\u2581": 1, "</w>": 2, "\u2581ab": 3, "a": 4, "b": 5, "ab": 6, "\u2581<s>": 7}
    vocabulary = Vocabulary(pieces, True)
    assert ways(vocabulary.said(["ab"])) == {(3,), (1, 4, 5, 2), (1, 6, 2)}
    assert ways(vocabulary.said(["<s>", "a"])) == {(7, 1, 4, 2)}
    assert vocabulary.unknown(["ab", "cab", "bc", "cab", "b", "<s"]) == ("cab", "bc", "<s")
    assert ways(vocabulary.said([])) == {()}
    words = Vocabulary({"a": 1, "b": 2}, False)
    assert ways(words.said(["b", "a", "b"])) == {(2, 1, 2)}
    assert words.unknown(["ab", "a"]) == ("ab",)


@pytest.fixture(scope="module")
def graph(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kaldi's own graph as a graph folder."""
    kaldi, folder = shared / "kaldi_an4", tmp_path_factory.mktemp("graph")
    (folder / "HCLG.fst").symlink_to(kaldi / "exp/tri3b/graph/HCLG.fst")
    (folder / "words.txt").symlink_to(kaldi / "lang/words.txt")
    model = transition_model.read(kaldi / "exp/tri3b/final.mdl")
    Transitions.of(model).write(folder / "transitions.npz")
    return folder


def test_what_the_search_loses_is_a_search_error(shared: Path, graph: Path) -> None:
    """Kaldi's best words as references: the same cost with a wide beam, lost with a narrow one."""
    golden = shared / "kaldi_an4/golden"
    words = Words.read(graph, Filters(frozenset({"<unk>"})))
    scores = dict(list(kaldi_io.iterate(golden / "gmm_loglikes_test20.ark.gz"))[:5])
    lines = (golden / "bestpath_words_test20.txt").read_text().splitlines()
    texts = {line.split()[0]: " ".join(line.split()[1:]) for line in lines}
    data = DataDir(Path("x"), {})
    for name in scores:
        data.utterances[name] = Utterance(id=name, speaker="s", recording=name, text=texts[name])
    scaling = Scaling(acoustic_scale=SCALE)
    judge = Judge(ReferenceGraph.read(graph, ()), lambda: scores.__getitem__, scaling)

    def judged(**options: float) -> dict[str, Cause]:
        searcher = Searcher(graph, Decoding(acoustic_scale=SCALE, **options))
        found = {}
        for name, matrix in scores.items():
            lattice = searcher(matrix).lattice
            found[name] = best_paths(lattice, [scaling])[0].cost if lattice else np.inf
        return dict(causes(judge, data, words, found, (), list(scores)))

    wide = judged(beam=14.0)
    assert {cause.kind for cause in wide.values()} == {MODEL}
    assert all(abs(cause.margin or 0.0) < 0.01 for cause in wide.values())
    assert Counter(c.kind for c in judged(beam=1.0, lattice_beam=0.5).values())[SEARCH] >= 3
    worse = replace(data.utterances[name], text="ELEVEN")
    data.utterances[name] = worse
    [(_, cause)] = causes(judge, data, words, {name: 0.0}, (), [name])
    assert cause.kind == MODEL and (cause.margin or 0) > 0
    [(_, cause)] = causes(judge, data, words, {name: 0.0}, [name], [name])
    assert cause.kind == SEARCH  # it reached no final state
    data.utterances[name] = replace(worse, text="ELEVEN QUAGGAS QUAGGAS")
    [(_, cause)] = causes(judge, data, words, {name: 0.0}, (), [name])
    assert cause == Cause(UNKNOWN, None, ("QUAGGAS",))
    data.utterances[name] = replace(worse, text=" ".join(["ELEVEN"] * 200))
    [(_, cause)] = causes(judge, data, words, {name: 0.0}, (), [name])
    assert cause.kind == NO_PATH


def sentence(name: str, place: tuple[str, str, float, float], edits: str, first: str) -> Sentence:
    """A scored segment whose edits are given by their kinds."""
    made = []
    for number, kind in enumerate(edits):
        ref = None if kind == "I" else f"{first}{number}"
        hyp = None if kind == "D" else ref if kind == "C" else f"<x{number}>"
        made.append(
            Edit(kind=kind, ref=ref, hyp=hyp, ref_arc=0, hyp_arc=0 if hyp is None else number + 1)  # type: ignore[arg-type]
        )
    file, channel, begin, end = place
    words = tuple(
        TimedWord(
            file=file, channel=channel, begin=begin + i / 10, duration=0.1, word="w", confidence=0.5
        )
        for i in range(len(made))
    )
    speaker = name.split("-")[0]
    segment = Segment(
        file=file, channel=channel, speaker=speaker, begin=begin, end=end, text="text"
    )
    return Sentence(name=name, speaker=speaker, edits=made, segment=segment, words=words)


@pytest.fixture
def scored() -> list[Sentence]:
    return [
        sentence("ann-000", ("call", "a", 0.5, 2.25), "CSD", "a"),
        sentence("ann-001", ("call", "A", 3.0, 4.5), "CC", "b"),
        sentence("bob-000", ("call", "B", 2.5, 3.5), "SIII", "c"),
        sentence("bob-001", ("call", "B", 6.5, 9.99), "D", "d"),
    ]


def test_counts_add_up(tmp_path: Path, scored: list[Sentence]) -> None:
    data = DataDir.read(make_data(tmp_path))
    utterances = utterances_of(scored, data)
    # the last one begins where no utterance does
    assert utterances == {"ann-000": "ann-1", "ann-001": "ann-2", "bob-000": "bob-1"}
    found = {"ann-1": Cause(MODEL, 2.5), "bob-1": Cause(SEARCH, -1.0)}
    made = SetErrors("test", scored, data, utterances, found, 2)
    assert [row["name"] for row in made.rows()] == ["bob-1", "ann-1"] and made.unlisted == 1
    assert [(who, gender, c.errors) for who, gender, c in made.speakers] == [
        ("bob", "m", 5),
        ("ann", "f", 2),
    ]
    assert sum(row["errors"] for row in made.why.values()) == made.total.errors == 7
    assert made.why[UNTESTED] == {"sentences": 1, "errors": 1}
    assert set(made.why) == set(CAUSES)
    lists = made.confusions
    assert sum(row.count for row in lists.substituted) == made.total.sub == 2
    assert sum(row.count for row in lists.deleted) == made.total.dele == 2
    assert sum(row.count for row in lists.inserted) == made.total.ins == 3
    # the second word of ann-1: begins 0.1 s into the clip, which begins at 0.5 s
    assert made.rows()[1]["columns"][1][1] == ["<x1>", "S", 0.1, 0.2, RECOGNISED, 0.5]


def test_utterances_that_are_longer_than_their_segments(tmp_path: Path) -> None:
    """As in Kaldi's s5c: no sentence was tested, since none began with its utterance."""
    data = DataDir.read(make_data(tmp_path))
    inside = [
        sentence("ann-000", ("call", "a", 0.6, 2.15), "S", "a"),
        sentence("ann-001", ("call", "A", 3.1, 4.4), "S", "b"),
        sentence("bob-000", ("call", "B", 5.0, 7.0), "S", "c"),  # a part of one
    ]
    assert utterances_of(inside, data) == {"ann-000": "ann-1", "ann-001": "ann-2"}


def test_a_long_utterances_scores_are_narrowed_to_what_is_read(
    shared: Path, graph: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The columns of the reference's own pdfs are held whole, others a chunk at a time."""
    monkeypatch.setattr("hadpsgd.decoding.scores.WHOLE", 1 << 14)
    found = ReferenceGraph.read(graph, ())
    archive = shared / "kaldi_an4/golden/gmm_loglikes_test20.ark.gz"
    name, matrix = next(iter(kaldi_io.iterate(archive)))
    lines = (shared / "kaldi_an4/golden/bestpath_words_test20.txt").read_text().splitlines()
    words = next(line.split()[1:] for line in lines if line.startswith(f"{name} "))
    numbers = read_symbols(graph / "words.txt")
    said = [in_a_row([numbers[word] for word in words])]
    little = scores_of(
        frames=len(matrix), pdfs=matrix.shape[1], make=lambda begin, end: matrix[begin:end]
    )
    assert isinstance(little, LongScores)
    scaling = Scaling(acoustic_scale=0.0833)
    (one,), (other,) = (found.best_paths(said, [each], scaling) for each in (little, matrix))
    assert one is not None and other is not None
    assert one.cost == other.cost and np.array_equal(one.transitions, other.transitions)
