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
from hadpsgd.config.decoding import Decoding
from hadpsgd.decoding.grammar import Grammar
from hadpsgd.decoding.lattice import Lattice, Scaling, best_paths
from hadpsgd.decoding.rescore import Rescorer
from hadpsgd.decoding.search import Searcher
from hadpsgd.errors import UserError
from hadpsgd.graph import arrays
from hadpsgd.lm import train
from hadpsgd.lm.prune import prune
from hadpsgd.lm.vocabulary import Vocabulary

SCALE = 0.0833


@pytest.fixture(scope="module")
def kaldi(shared: Path) -> Path:
    return shared / "kaldi_an4"


def grammar(rows: list[tuple[int, int, float, int]], final: dict[int, float]) -> Grammar:
    """G from (state, label, cost, next); label 9 backs off."""
    size = 1 + max(max(row[0], row[3]) for row in rows)
    rows = sorted(rows)
    arcs = np.array([(label, label % 9, cost, to) for _, label, cost, to in rows], arrays.ARC)
    ends = np.full(size, np.inf, np.float32)
    ends[list(final)] = list(final.values())
    sources = np.array([row[0] for row in rows])
    return Grammar(arrays.assemble(0, ends, sources, arcs), 9)


# state 0: after <s>, 1: no history, 2: after word 1; backing off may be cheaper than an n-gram
OLD = grammar(
    [(0, 9, 0.5, 1), (1, 1, 1.0, 2), (1, 2, 1.5, 1), (2, 9, 0.25, 1), (2, 2, 2.5, 1)],
    {1: 1.0, 2: 0.25},
)
NEW = grammar(
    [
        (0, 9, -0.5, 1),
        (0, 1, 2.0, 2),
        (1, 1, 0.5, 2),
        (1, 2, 1.0, 1),
        (2, 9, 1.0, 1),
        (2, 1, 0.125, 2),
    ],
    {1: 0.75, 2: 3.0},
)


def cost_in(grammar: Grammar, words: list[int]) -> float:
    """Least cost of words over all paths of G, by walking all."""

    def walk(state: int, rest: list[int]) -> float:
        found = [float(grammar.graph.final[state])] if not rest else []
        for arc in grammar.graph.arcs[grammar.graph.first[state] : grammar.graph.first[state + 1]]:
            label, cost, to = int(arc["ilabel"]), float(arc["weight"]), int(arc["next"])
            if label == 9:
                found.append(cost + walk(to, rest))
            elif rest and label == rest[0]:
                found.append(cost + walk(to, rest[1:]))
        return min(found, default=np.inf)

    return walk(grammar.graph.start, words)


@given(lattices())
@settings(max_examples=100)
def test_rescoring_against_all_paths(lat: Lattice) -> None:
    rescored = Rescorer(OLD, NEW)(lat)
    assert np.all(rescored.arcs["next"] > rescored.sources)
    for scaling in SCALINGS:
        wanted = sorted(
            cost + cost_in(NEW, words) - cost_in(OLD, words)
            for cost, words in paths_of(lat, scaling)
        )
        found = sorted(cost for cost, _ in paths_of(rescored, scaling))
        assert found == pytest.approx(wanted, abs=1e-3)
        assert best_paths(rescored, [scaling])[0].cost == pytest.approx(wanted[0], abs=1e-3)


def test_a_word_that_the_full_model_lacks_is_named() -> None:
    lat = two_words([0.0, 1.0])
    with pytest.raises(UserError, match="the full language model lacks word 3"):
        Rescorer(grammar([(0, 1, 0.0, 0), (0, 2, 0.0, 0), (0, 3, 0.0, 0)], {0: 0.0}), NEW)(lat)


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
