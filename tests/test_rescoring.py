"""Rescoring of lattices: against all paths, and against the full model in the graph."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from lattice_problems import SCALINGS, lattices, paths_of, two_words

from hadpsgd import kaldi_io
from hadpsgd.cli import main
from hadpsgd.config.decoding import Decoding, Graph
from hadpsgd.corpus.lang.lexicon_fst import WORD_END, WORD_START
from hadpsgd.decoding.grammar import Grammar
from hadpsgd.decoding.lattice import Lattice, Scaling, best_paths
from hadpsgd.decoding.ngram_states import NgramStates, States
from hadpsgd.decoding.rescore import Rescorer
from hadpsgd.decoding.search import Searcher
from hadpsgd.decoding.spelled_states import SpelledStates
from hadpsgd.errors import UserError
from hadpsgd.graph import arrays, rescoring
from hadpsgd.graph.arrays import Arrays
from hadpsgd.graph.command import of_arpa
from hadpsgd.graph.spelling import with_spelling
from hadpsgd.lm import stored, train
from hadpsgd.lm.backoff import load
from hadpsgd.lm.prune import prune
from hadpsgd.lm.vocabulary import Vocabulary

SCALE = 0.0833
NAMES = ["<eps>", "a", "b", "c", "d", WORD_START, WORD_END, "#0", "<s>", "</s>"]
NUMBERS = {name: number for number, name in enumerate(NAMES)}


@pytest.fixture(scope="module")
def kaldi(shared: Path) -> Path:
    return shared / "kaldi_an4"


def arpa_text(rows: dict[str, tuple[float, float | None]]) -> str:
    """An ARPA file of n-grams with log10 probability and back-off."""
    orders = sorted({len(gram.split()) for gram in rows})
    by_order = {n: [gram for gram in rows if len(gram.split()) == n] for n in orders}
    lines = ["\\data\\", *(f"ngram {n}={len(by_order[n])}" for n in orders)]
    for order in orders:
        lines += ["", f"\\{order}-grams:"]
        for gram in by_order[order]:
            log_prob, backoff = rows[gram]
            more = "" if order == orders[-1] else f"\t{backoff:.6f}"
            lines.append(f"{log_prob:.6f}\t{gram}{more}")
    return "\n".join([*lines, "", "\\end\\", ""])


# backing off may be cheaper than an n-gram
OLD = {
    "<s>": (-99.0, -0.2), "</s>": (-0.4, None), "a": (-0.4, -0.1), "b": (-0.65, -0.3),
    "a b": (-1.1, None), "a </s>": (-0.1, None),
}  # fmt: skip
NEW = {
    "<s>": (-99.0, 0.2), "</s>": (-0.3, None), "a": (-0.2, -0.4), "b": (-0.4, 0.0),
    "<s> a": (-0.9, 0.1), "a a": (-0.05, -0.2), "a </s>": (-1.3, None),
    "<s> a a": (-0.7, None), "a a b": (-0.3, None),
}  # fmt: skip


def model_of(folder: Path, rows: dict[str, tuple[float, float | None]]) -> NgramStates:
    """A model's states, by way of the files in a graph folder."""
    folder.mkdir()
    path = folder / "model.arpa"
    path.write_text(arpa_text({gram: (p, b or 0.0) for gram, (p, b) in rows.items()}))
    stored.write(load(path), folder / "stored")
    return NgramStates(stored.read(folder / "stored"), NUMBERS)


def g_of(folder: Path) -> Arrays:
    """The model of a folder as an FST, by kaldilm's arpa2fst."""
    (folder / "words.txt").write_text("".join(f"{n} {i}\n" for n, i in NUMBERS.items()))
    return arrays.from_fst(of_arpa(arpa=folder / "model.arpa", words=folder / "words.txt"))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Rescorer, Arrays, Arrays]:
    folder = tmp_path_factory.mktemp("models")
    old, new = model_of(folder / "old", OLD), model_of(folder / "new", NEW)
    return Rescorer(Grammar(old), Grammar(new)), g_of(folder / "old"), g_of(folder / "new")


def cost_in(graph: Arrays, words: list[int]) -> float:
    """Least cost of words over all paths of G, by walking all."""

    def walk(state: int, rest: list[int]) -> float:
        found = [float(graph.final[state])] if not rest else []
        for arc in graph.arcs[graph.first[state] : graph.first[state + 1]]:
            label, cost, to = int(arc["ilabel"]), float(arc["weight"]), int(arc["next"])
            if label == NUMBERS["#0"]:
                found.append(cost + walk(to, rest))
            elif rest and label == rest[0]:
                found.append(cost + walk(to, rest[1:]))
        return min(found, default=np.inf)

    return walk(graph.start, words)


def cost_of(states: States, words: list[int]) -> float:
    """The same as rescoring asks for it."""
    grammar = Grammar(states)
    total, state = grammar.start()
    for word in words:
        cost, state = grammar.step(state, word)
        total += cost
    return total + grammar.final(state)


def drawn(seed: int, order: int) -> dict[str, tuple[float, float | None]]:
    """A model whose n-grams may lack their ends, and histories what follows; "x" is in no graph."""
    rng = np.random.default_rng(seed)
    words = ["a", "b", "c", "x", WORD_START]

    def number(gram: str) -> tuple[float, float]:
        return -2.5 * rng.random(), 0.0 if gram == "</s>" else 1.2 * rng.random() - 0.9

    rows = {gram: number(gram) for gram in ["<s>", "</s>", *words]}
    below = ["<s>", *words]
    for _ in range(order - 1):
        grams = [f"{context} {word}" for context in below for word in [*words, "</s>"]]
        rows |= {gram: number(gram) for gram in grams if rng.random() < 0.25}
        below = [gram for gram in grams if gram in rows and not gram.endswith("</s>")]
    return dict(rows)


@pytest.mark.parametrize(("seed", "order"), [(1, 1), (2, 2), (3, 3), (4, 4)])
def test_a_models_costs_are_those_of_its_g(tmp_path: Path, seed: int, order: int) -> None:
    """By kaldilm's arpa2fst, all paths walked."""
    states, graph = model_of(tmp_path / "m", drawn(seed, order)), g_of(tmp_path / "m")
    rng = np.random.default_rng(seed)
    for _ in range(60):
        words = rng.integers(1, 4, rng.integers(0, 7)).tolist()
        assert cost_of(states, words) == pytest.approx(cost_in(graph, words), abs=1e-5)
    with pytest.raises(UserError, match="lacks word 4"):
        cost_of(states, [1, NUMBERS["d"]])


@pytest.mark.parametrize(("seed", "order"), [(5, 2), (6, 3), (7, 4)])
def test_spelled_words_cost_what_they_do_in_g(tmp_path: Path, seed: int, order: int) -> None:
    spelling = {"<s>": (-99.0, -0.3), "</s>": (-0.5, 0.0), "c": (-0.9, -0.2), "d": (-0.3, -0.4)}
    spelling |= {"<s> d": (-0.1, 0.0), "d c": (-0.8, 0.0), "c </s>": (-0.2, 0.0)}
    known = model_of(tmp_path / "known", drawn(seed, order))
    pieces = model_of(tmp_path / "pieces", dict(spelling))
    begin, end = NUMBERS[WORD_START], NUMBERS[WORD_END]
    states = SpelledStates(words=known, spelling=pieces, begin=begin, end=end, cost=-1.5, scale=0.7)
    labels = (begin, end, NUMBERS["#0"])
    g, inside = g_of(tmp_path / "known"), g_of(tmp_path / "pieces")
    graph = with_spelling(g, inside, labels, cost=-1.5, scale=0.7)
    rng = np.random.default_rng(seed)
    for _ in range(40):
        words: list[int] = []
        for word in rng.integers(1, 5, rng.integers(0, 5)).tolist():
            spelled = [begin, *rng.integers(3, 5, 2).tolist(), end]
            words += spelled if word == 4 else [word]
        assert cost_of(states, words) == pytest.approx(cost_in(graph, words), abs=1e-5)


def test_a_graph_folder_holds_what_rescores_it(tmp_path: Path) -> None:
    """With spelled words: the costs of the config are those of both grammars."""
    known = drawn(8, 3)
    for name, rows in (("known", known), ("pieces", drawn(9, 2))):
        model_of(tmp_path / name, rows)
    files = [tmp_path / name / "model.arpa" for name in ("known", "pieces")]
    (tmp_path / "words.txt").write_text("".join(f"{n} {i}\n" for n, i in NUMBERS.items()))
    assert Rescorer.of_graph(tmp_path) is None
    settings = Graph(spelled_cost=-3.0, spelling_scale=0.5)
    rescoring.write(tmp_path, old=files[0], new=files[0], spelling=files[1], settings=settings)
    rescorer = Rescorer.of_graph(tmp_path)
    assert rescorer is not None
    begin, end = NUMBERS[WORD_START], NUMBERS[WORD_END]
    g, inside = g_of(tmp_path / "known"), g_of(tmp_path / "pieces")
    graph = with_spelling(g, inside, (begin, end, NUMBERS["#0"]), cost=-3.0, scale=0.5)
    words = [1, begin, 2, 3, end, 1]
    for grammar in (rescorer.old, rescorer.new):
        assert cost_of(grammar.states, words) == pytest.approx(cost_in(graph, words), abs=1e-5)
    (tmp_path / "rescore/spelling.json").write_text("{}")
    with pytest.raises(UserError, match=r"spelling\.json: damaged"):
        Rescorer.of_graph(tmp_path)


def test_damaged_models_are_named(tmp_path: Path) -> None:
    model_of(tmp_path / "m", NEW)
    folder = tmp_path / "m/stored"
    file = folder / "2.log_prob.npy"
    whole = file.read_bytes()
    file.write_bytes(whole[:-4])
    with pytest.raises(UserError, match="stored: a damaged language model"):
        stored.read(folder)
    file.write_bytes(b"")
    with pytest.raises(UserError, match="stored: a damaged language model"):
        stored.read(folder)
    file.unlink()
    with pytest.raises(UserError, match=r"2\.log_prob\.npy: missing"):
        stored.read(folder)


@given(lattices())
@settings(max_examples=100)
def test_rescoring_against_all_paths(pair: tuple[Rescorer, Arrays, Arrays], lat: Lattice) -> None:
    rescorer, old, new = pair
    rescored = rescorer(lat)
    assert np.all(rescored.arcs["next"] > rescored.sources)
    for scaling in SCALINGS:
        wanted = sorted(
            cost + cost_in(new, words) - cost_in(old, words)
            for cost, words in paths_of(lat, scaling)
        )
        found = sorted(cost for cost, _ in paths_of(rescored, scaling))
        assert found == pytest.approx(wanted, abs=1e-3)
        assert best_paths(rescored, [scaling])[0].cost == pytest.approx(wanted[0], abs=1e-3)


def test_a_word_that_the_full_model_lacks_is_named(tmp_path: Path) -> None:
    old = model_of(tmp_path / "old", {**OLD, "c": (-1.0, 0.0)})
    new = model_of(tmp_path / "new", NEW)
    with pytest.raises(UserError, match="the full language model lacks word 3"):
        Rescorer(Grammar(old), Grammar(new))(two_words([0.0, 1.0]))


@pytest.mark.parametrize("first", ["2-gram", "pruned"])
def test_a_rescored_first_pass_gives_the_full_models_words(
    kaldi: Path, tmp_path: Path, first: str
) -> None:
    """A small graph, its lattices rescored with the 4-gram: the words of the 4-gram's graph."""
    full, small = kaldi / "lang/4gram.arpa.gz", tmp_path / "first.arpa.gz"
    if first == "pruned":
        prune(full, 3e-5, small)
    else:
        vocabulary = Vocabulary.of_lang(kaldi / "lang")
        train.train(kaldi / "lang/lm_train.txt", vocabulary, 2, small)
    (tmp_path / "config.yaml").write_text("name: t\ncorpus: {kind: an4}\n")
    common = ["graph", "--config", str(tmp_path / "config.yaml"), "--lang", str(kaldi / "lang")]
    common += ["--ali", str(kaldi / "exp/tri3b"), "--arpa", str(full)]
    assert main([*common, "--out", str(tmp_path / "direct")]) == 0
    assert main([*common, "--first-pass", str(small), "--out", str(tmp_path / "pruned")]) == 0
    wide = Decoding(acoustic_scale=SCALE, beam=14.0, lattice_beam=8.0)
    direct, pruned = Searcher(tmp_path / "direct", wide), Searcher(tmp_path / "pruned", wide)
    same = total = 0
    golden = kaldi_io.iterate(kaldi / "golden/gmm_loglikes_test20.ark.gz")
    for _, scores in islice(golden, 6):
        words = []
        for searcher in (direct, pruned):
            lat = searcher(scores).lattice
            assert lat is not None
            words.append(best_paths(lat, [Scaling(acoustic_scale=SCALE)])[0].words.tolist())
        same += words[0] == words[1]
        total += 1
    assert total == 6
    assert same == total
