"""Rescoring by the neural language model: lists and choices against all paths by brute force."""

from __future__ import annotations

import gzip
import math
import shutil
from pathlib import Path

import neural_toy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lattice_problems import lattices, two_words

from hadpsgd.decoding import lattice_io
from hadpsgd.decoding import list_consensus as list_consensus_module
from hadpsgd.decoding.confidence import confidences
from hadpsgd.decoding.consensus import BEAM, Edits, least_risk, slots_of
from hadpsgd.decoding.lattice import ARC, Lattice, Scaling, best_paths
from hadpsgd.decoding.list_consensus import list_confidences, list_consensus
from hadpsgd.decoding.list_files import checksum_of, partial_of, read, read_of, write
from hadpsgd.decoding.nbest_list import NbestList
from hadpsgd.decoding.neural_lists import ListMaker
from hadpsgd.decoding.word_lattice import WordArc, WordLattice
from hadpsgd.errors import UserError
from hadpsgd.lm.neural.events import Events
from hadpsgd.lm.neural.mixture import Models
from hadpsgd.scoring.rescoring import Rescoring

NAMES = dict(enumerate(neural_toy.NAMES, 1))
FIRST = Scaling(acoustic_scale=0.5)
OTHERS = [Scaling(acoustic_scale=0.2), Scaling(acoustic_scale=1.0, word_penalty=0.5)]
EMPTY = Lattice(np.zeros((0, 2), np.float32), np.zeros(1, np.int64), np.zeros(0, ARC))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return neural_toy.models(tmp_path_factory.mktemp("models"))


def maker(models: Models, count: int = 10_000, partial: tuple[str, ...] = ()) -> ListMaker:
    return ListMaker(models, NAMES, [FIRST], count, frozenset(partial))


def all_sequences(lat: Lattice, scaling: Scaling) -> dict[tuple[int, ...], tuple[float, float]]:
    """Graph and acoustic cost of each word sequence's best path, by walking all paths."""
    best: dict[tuple[int, ...], tuple[float, float, float]] = {}

    def walk(state: int, graph: float, acoustic: float, words: tuple[int, ...]) -> None:
        if np.isfinite(lat.final[state, 0]):
            ends = graph + float(lat.final[state, 0]), acoustic + float(lat.final[state, 1])
            cost = ends[0] + scaling.acoustic_scale * ends[1]
            if words not in best or cost < best[words][0]:
                best[words] = cost, *ends
        for arc in lat.arcs[lat.first[state] : lat.first[state + 1]]:
            said = words + (int(arc["olabel"]),) * bool(arc["olabel"])
            more = graph + float(arc["graph"]), acoustic + float(arc["acoustic"])
            walk(int(arc["next"]), *more, said)

    walk(0, 0.0, 0.0, ())
    return {words: (graph, acoustic) for words, (_, graph, acoustic) in best.items()}


def change(models: Models, words: tuple[int, ...], weight: float, *, ends: bool = True) -> float:
    """What a sequence costs more, by the definition."""
    said = [NAMES[word] for word in words]
    ngram = neural_toy.by_hand(said)
    neural = neural_toy.dense(models.neural, models.words.numbers(said))
    mixed = np.log((1 - weight) * np.exp(ngram) + weight * np.exp(neural))
    return float((ngram - mixed)[: None if ends else -1].sum())


@given(lat=lattices())
@settings(max_examples=25, deadline=None)
def test_costs_are_those_of_all_paths(lat: Lattice, models: Models) -> None:
    """And the words are the best of all, under any scaling whose list is whole."""
    ((_, found),) = maker(models)([("u", lat)])
    expected = all_sequences(lat, FIRST)
    # sequences too far from the best are not listed
    near = {w: c for w, c in expected.items() if w in found.words}
    assert set(found.words) == set(near)
    for i, words in enumerate(found.words):
        graph, acoustic = expected[words]
        cost = graph + FIRST.acoustic_scale * acoustic
        own = found.graph[i] + FIRST.acoustic_scale * found.acoustic[i]
        assert own == pytest.approx(cost, abs=1e-4)
    for scaling, weight in ((FIRST, 0.3), (OTHERS[1], 1.0)):
        by_hand = {
            words: graph
            + scaling.acoustic_scale * acoustic
            + scaling.word_penalty * len(words)
            + change(models, words, weight)
            for words, (graph, acoustic) in zip(
                found.words, zip(found.graph, found.acoustic, strict=True), strict=True
            )
        }
        costs = found.costs(scaling, weight)
        np.testing.assert_allclose(costs, [by_hand[words] for words in found.words], atol=1e-3)
        best = found.best(scaling, weight)
        assert by_hand[best] <= min(by_hand.values()) + 1e-3


@given(lat=lattices())
@settings(max_examples=20, deadline=None)
def test_with_weight_0_all_is_as_without(lat: Lattice, models: Models) -> None:
    lists = maker(models)([("u", lat)])
    scalings = [FIRST, *OTHERS]
    plain = best_paths(lat, scalings)
    said = Rescoring([0.0] * 3, iter(lists)).words("u", lat, scalings)
    assert said == [path.words.tolist() for path in plain]
    path, sure = Rescoring([0.0], iter(lists)).path("u", lat, FIRST, ())
    np.testing.assert_array_equal(path.transitions, plain[0].transitions)
    np.testing.assert_array_equal(path.word_frames, plain[0].word_frames)
    assert path.cost == plain[0].cost
    assert sure == confidences(lat, plain[0], FIRST)


@given(lat=lattices())
@settings(max_examples=20, deadline=None)
def test_the_chosen_words_have_times_and_confidences(lat: Lattice, models: Models) -> None:
    lists = maker(models)([("u", lat)])
    ((_, found),) = lists
    path, sure = Rescoring([0.75], iter(lists)).path("u", lat, FIRST, {2})
    assert tuple(path.words.tolist()) == found.best(FIRST, 0.75)
    assert len(path.word_frames) == len(path.words)
    assert (np.diff(path.word_frames) >= 0).all()
    assert sure is None or len(sure) == len(path.words)
    for word, probability in zip(path.words.tolist(), sure or (), strict=bool(sure)):
        assert probability == 1.0 if word == 2 else 0.0 < probability <= 1.0


def test_confidences_are_shares_of_the_list(models: Models) -> None:
    """Sequences that differ in one word: its probability is theirs."""
    lat = two_words([0.1, 0.4, 0.9])
    lat.arcs["olabel"][:3] = [1, 2, 3]
    ((_, found),) = maker(models)([("u", lat)])
    costs = found.costs(FIRST, 0.5)
    shares = np.exp(-costs) / np.exp(-costs).sum()
    for words, share in zip(found.words, shares, strict=True):
        sure = list_confidences(found.words, costs, words)
        # of the last place all say word 3, and one says it in the first, too
        assert sure == pytest.approx([share, 1.0], abs=1e-6)


SEQUENCES = st.lists(
    st.lists(st.integers(1, 3), max_size=4).map(tuple), min_size=1, max_size=8, unique=True
)


def list_of(words: list[tuple[int, ...]], costs: np.ndarray) -> NbestList:
    """Sequences at costs, of which models say nothing."""
    first = np.cumsum([0, *(len(each) + 1 for each in words)])
    nothing = np.zeros(first[-1])
    events = Events(nothing, nothing, nothing == 0.0, first)
    return NbestList(tuple(words), costs, np.zeros(len(words)), events)


def apart(words: list[tuple[int, ...]], costs: list[float]) -> WordLattice:
    """Sequences side by side, without any node in common but begin and end."""
    arcs, node, end = [], 0, 1 + sum(map(len, words))
    for each, cost in zip(words, costs, strict=True):
        before = 0
        for word in each:
            node += 1
            arcs.append((before, node, word, 0.0))
            before = node
        arcs.append((before, end, 0, cost))
    return WordLattice(
        end + 1,
        [
            WordArc(source=s, target=t, word=w, cost=c, graph=0.0, acoustic=0.0)
            for s, t, w, c in sorted(arcs)
        ],
    )


@given(
    words=SEQUENCES,
    silent=st.sampled_from([(), (2,)]),
    seed=st.integers(0, 1000),
    spread=st.sampled_from([0.1, 1.0, 4.0, 9.0]),
)
@settings(max_examples=100, deadline=None)
def test_a_list_is_a_lattice_of_paths_that_meet_nowhere(
    words: list[tuple[int, ...]], silent: tuple[int, ...], seed: int, spread: float
) -> None:
    """Under several weights at once what the recursion over lattices says under each."""
    rng = np.random.default_rng(seed)
    costs = rng.uniform(0.0, spread, (5, len(words)))
    given, words = words, [tuple(word for word in each if word not in silent) for each in words]
    for row, agreed in zip(costs, list_consensus(given, costs, silent), strict=True):
        near = np.flatnonzero(row <= row.min() + BEAM)
        edits = Edits(apart([words[i] for i in near], row[near].tolist()))
        expected = least_risk(edits, words[int(row.argmin())])
        assert agreed.words == expected.words
        assert agreed.confidences == pytest.approx(expected.confidences, abs=1e-9)
        assert agreed.risk == pytest.approx(expected.risk, abs=1e-9)
        edits, said = Edits(apart(words, row.tolist())), words[-1]
        _, gamma = edits.statistics(slots_of(said))
        own = [gamma[edits.number(np.array([w])), 2 * i + 1].item() for i, w in enumerate(said)]
        assert list_confidences(words, row, said) == pytest.approx(own, abs=1e-9)


def test_long_lists_are_aligned_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    words = [tuple(rng.integers(1, 4, rng.integers(0, 9)).tolist()) for _ in range(30)]
    costs = rng.uniform(0.0, 3.0, (4, 30))
    whole = list_consensus(words, costs)
    monkeypatch.setattr(list_consensus_module, "_CELLS", 400)
    assert list_consensus(words, costs) == whole


def edits_of(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """Levenshtein's distance, by its definition."""
    if not one or not other:
        return len(one) + len(other)
    here = edits_of(one[1:], other[1:]) + (one[0] != other[0])
    return min(here, edits_of(one[1:], other) + 1, edits_of(one, other[1:]) + 1)


@given(words=SEQUENCES, silent=st.sampled_from([(), (2,)]), seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_the_words_of_least_expected_errors(
    words: list[tuple[int, ...]], silent: tuple[int, ...], seed: int
) -> None:
    """The expectation over the list's sequences by the definition; no other word in a place, none
    in its place, or one more has a smaller one."""
    costs = np.random.default_rng(seed).uniform(0.0, 4.0, len(words))
    shares = np.exp(-costs) / np.exp(-costs).sum()
    heard = [tuple(word for word in each if word not in silent) for each in words]

    def risk(said: tuple[int, ...]) -> float:
        return float(sum(p * edits_of(each, said) for p, each in zip(shares, heard, strict=True)))

    (agreed,) = list_consensus(words, costs[None], silent)
    assert not set(agreed.words) & set(silent)
    assert agreed.risk == pytest.approx(risk(agreed.words), abs=1e-3)  # an insertion's 1e-5 more
    best = tuple(word for word in words[int(costs.argmin())] if word not in silent)
    assert agreed.risk <= risk(best) + 1e-3


@given(lat=lattices())
@settings(max_examples=20, deadline=None)
def test_least_expected_errors_by_weight(lat: Lattice, models: Models) -> None:
    """The list's at any weight, 0 too; `path` says what `words` says."""
    lists = maker(models)([("u", lat)])
    ((_, found),) = lists
    said = Rescoring([0.0, 0.75], iter(lists), risk=True).words("u", lat, [FIRST, FIRST], {2})
    for weight, words in zip([0.0, 0.75], said, strict=True):
        (agreed,) = list_consensus(found.words, found.costs(FIRST, weight)[None], {2})
        assert words == agreed.words
    for weight, words in zip([0.0, 0.75], said, strict=True):
        path, sure = Rescoring([weight], iter(lists), risk=True).path("u", lat, FIRST, {2})
        assert tuple(word for word in path.words.tolist() if word != 2) == tuple(words)
        assert sure is None or len(sure) == len(path.words)
        assert (np.diff(path.word_frames) >= 0).all()


def test_words_that_no_sequence_says() -> None:
    """Each place has its own majority."""
    found = list_of([(1, 5, 3), (4, 2, 3), (1, 2, 6)], np.zeros(3))
    rescoring = Rescoring([1.0], iter([("u", found)]), risk=True)
    assert rescoring.words("u", EMPTY, [FIRST]) == [(1, 2, 3)]


def test_where_an_utterance_ends_within_a_sentence(models: Models) -> None:
    """The search paid for no end of it, so no other end is paid for."""
    lat = two_words([0.1, 0.4])
    whole, cut = (maker(models, partial=names)([("u", lat)])[0][1] for names in ((), ("u",)))
    for i, words in enumerate(whole.words):
        assert whole.changes(0.5)[i] == pytest.approx(change(models, words, 0.5), abs=1e-4)
        without = change(models, words, 0.5, ends=False)
        assert cut.changes(0.5)[i] == pytest.approx(without, abs=1e-4)


def test_what_a_decoding_says_of_partial_utterances(tmp_path: Path) -> None:
    assert partial_of(tmp_path) == frozenset()
    (tmp_path / "decode.json").write_text('{"partial": ["u2"]}')
    assert partial_of(tmp_path) == {"u2"}
    (tmp_path / "decode.json").write_text("[")
    with pytest.raises(UserError, match="damaged"):
        partial_of(tmp_path)


def test_no_more_than_asked_for_under_each_scaling(models: Models) -> None:
    lat = two_words([0.0, 0.5, 1.0])
    lat.arcs["olabel"][:3] = [1, 2, 3]
    lat.arcs["acoustic"][:3] = [9.0, 0.0, 1.0]
    made = ListMaker(models, NAMES, [FIRST, Scaling(acoustic_scale=1e-6)], 1)
    ((_, found),) = made([("u", lat)])
    assert found.words == ((2, 3), (1, 3))


def test_lists_come_back_from_their_file(models: Models, tmp_path: Path) -> None:
    lats = [("a", two_words([0.1, 0.4])), ("none", EMPTY), ("b", two_words([0.3, 0.2]))]
    made = [*maker(models).all(iter(lats))]
    assert [name for name, _ in made] == ["a", "none", "b"]
    file = tmp_path / "dev.jsonl.gz"
    assert write(file, made, lattices="abc") == (3, 4)
    lattices, lists = read(file)
    assert lattices == "abc"
    for (name, back), (wanted, found) in zip(lists, made, strict=True):
        assert (name, back.words) == (wanted, found.words)
        for scaling in (FIRST, *OTHERS):
            np.testing.assert_array_equal(back.costs(scaling, 0.3), found.costs(scaling, 0.3))
    again = file.read_bytes()
    write(file, made, lattices="abc")
    assert file.read_bytes() == again
    # an utterance without a path says nothing
    path, sure = Rescoring([0.5], iter(made[1:2])).path("none", EMPTY, FIRST, ())
    assert (len(path.words), sure) == (0, confidences(EMPTY, path, FIRST))


def test_lists_of_other_lattices_are_refused(models: Models, tmp_path: Path) -> None:
    lat = two_words([0.1, 0.4])
    lists = maker(models)([("u1", lat)])
    with pytest.raises(UserError, match="u2 wanted, of u1 found"):
        Rescoring([0.5], iter(lists)).words("u2", lat, [FIRST])
    with pytest.raises(UserError, match="u1 wanted, no more"):
        Rescoring([0.5], iter([])).words("u1", lat, [FIRST])
    with pytest.raises(UserError, match="missing"):
        read(tmp_path / "none.gz")
    (tmp_path / "bad.gz").write_bytes(b"no gzip")
    with pytest.raises(UserError, match=r"bad\.gz:1.*damaged"):
        read(tmp_path / "bad.gz")
    for first in (b"", b"[1]\n", b'{"lattices": 1}\n', b'["u", [], [], [], [], []]\n'):
        (tmp_path / "no-head.gz").write_bytes(gzip.compress(first))
        with pytest.raises(UserError, match="does not say of which lattices"):
            read(tmp_path / "no-head.gz")
    file = tmp_path / "short.gz"
    found = lists[0][1]
    short = NbestList(found.words, found.graph[:1], found.acoustic, found.events)
    write(file, [("u", short)], lattices="abc")
    with pytest.raises(UserError, match="numbers of another list"):
        next(read(file)[1])
    found.events.neural[1] = math.nan
    write(file, [("u", found)], lattices="abc")
    with pytest.raises(UserError, match=r"short\.gz:2: damaged \(a number that is not finite"):
        next(read(file)[1])


def test_lists_belong_to_what_a_decoding_holds(tmp_path: Path) -> None:
    """Wherever it lies; not to other lattices, numbers of words or ends within sentences."""
    one = tmp_path / "one"
    one.mkdir()
    (one / "lat.1.gz").write_bytes(lattice_io.entry("u", two_words([0.1])))
    (one / "words.txt").write_text("a 1\nb 2\n")
    (one / "decode.json").write_text('{"seconds": 1.0, "partial": []}')
    write(tmp_path / "lists.gz", [], lattices=checksum_of(one))
    same = shutil.copytree(one, tmp_path / "same")
    (same / "decode.json").write_text('{"seconds": 2.0, "partial": []}')
    assert [*read_of(tmp_path / "lists.gz", decode=same)] == []
    for name, content in (
        ("lat.1.gz", lattice_io.entry("u", two_words([0.2]))),
        ("lat.2.gz", lattice_io.entry("v", two_words([0.1]))),
        ("words.txt", b"a 2\nb 1\n"),
        ("decode.json", b'{"partial": ["u"]}'),
    ):
        other = shutil.copytree(one, tmp_path / f"other-{name}")
        (other / name).write_bytes(content)
        with pytest.raises(UserError, match=r"lists\.gz: .*do not go with the lattices of"):
            read_of(tmp_path / "lists.gz", decode=other)


def test_a_word_that_the_model_lacks(models: Models) -> None:
    lat = two_words([0.1])
    made = ListMaker(models, NAMES | {1: "new"}, [FIRST], 5)
    with pytest.raises(UserError, match="lacks the word 'new'"):
        made([("u", lat)])


def test_interpolation_of_one_word_by_hand(models: Models) -> None:
    """A list of a single word, without any of the functions above."""
    lat = Lattice(
        np.array([[np.inf] * 2, [0.0, 0.0]], np.float32),
        np.array([0, 1, 1]),
        np.array([(1, 1, 2.0, 3.0, 1)], ARC),
    )
    ((_, found),) = maker(models)([("u", lat)])
    p_ngram = [10**-0.3, 10 ** (-0.2 - 0.9)]
    p_neural = np.exp(neural_toy.dense(models.neural, models.words.numbers(["a"])))
    mixed = [0.25 * n + 0.75 * x for n, x in zip(p_neural, p_ngram, strict=True)]
    expected = 2.0 + 0.5 * 3.0 + math.log(math.prod(p_ngram)) - math.log(math.prod(mixed))
    assert found.costs(FIRST, 0.25)[0] == pytest.approx(expected, abs=1e-5)
