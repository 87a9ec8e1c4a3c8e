"""Minimum Bayes risk decoding against its definition: all paths, all edit distances."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lattice_problems import lattices, paths_of, two_words

from hadpsgd.cli import main
from hadpsgd.decoding import consensus as consensus_module
from hadpsgd.decoding import lattice_io
from hadpsgd.decoding.consensus import Edits, consensus
from hadpsgd.decoding.lattice import ARC, Lattice, Scaling, best_paths
from hadpsgd.decoding.nearest import nearest_path
from hadpsgd.decoding.word_lattice import WordLattice, word_lattice
from hadpsgd.graph.transitions import Transitions

SCALING = Scaling(acoustic_scale=0.5, word_penalty=0.2)
Distribution = dict[tuple[int, ...], float]


def distance(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    """Levenshtein's, by the definition."""
    row = list(range(len(second) + 1))
    for i, a in enumerate(first):
        row, before = [i + 1], row
        for j, b in enumerate(second):
            row.append(min(before[j] + (a != b), before[j + 1] + 1, row[j] + 1))
    return row[-1]


def distribution(words: WordLattice) -> Distribution:
    """Probability of every word sequence, by walking all paths."""
    found: Distribution = defaultdict(float)
    leaving = words.leaving()

    def walk(node: int, cost: float, said: tuple[int, ...]) -> None:
        if node == words.nodes - 1:
            found[said] += math.exp(-cost)
        for arc in leaving[node]:
            walk(arc.target, cost + arc.cost, said + (arc.word,) * (arc.word > 0))

    walk(0, 0.0, ())
    total = sum(found.values())
    return {said: mass / total for said, mass in found.items()}


def expected(words: tuple[int, ...], all_paths: Distribution) -> float:
    """Edits that are expected if these words are said."""
    return sum(share * distance(words, other) for other, share in all_paths.items())


def sausage(bins: list[list[float]]) -> Lattice:
    """One word a bin, each bin with words of its own; numbers are costs."""
    rows, word = [], 0
    for place, costs in enumerate(bins):
        for cost in costs:
            word += 1
            rows.append((1, word, cost, 0.0, place + 1))
    first = np.concatenate([[0], np.cumsum([len(costs) for costs in bins])])
    final = np.full((len(bins) + 1, 2), np.inf, np.float32)
    final[-1] = 0.0
    return Lattice(final, np.append(first, first[-1]), np.array(rows, ARC))


@given(lattices())
@settings(max_examples=150, deadline=None)
def test_no_more_errors_than_the_best_path_by_its_own_bound(lat: Lattice) -> None:
    words = word_lattice(lat, SCALING)
    everything = distribution(words)
    edits = Edits(words)
    best = tuple(best_paths(lat, [SCALING])[0].words.tolist())
    found = consensus(lat, SCALING, beam=np.inf)
    assert found.risk <= edits.risk(best) + 1e-6
    assert found.risk == pytest.approx(edits.risk(found.words), abs=1e-9)
    for said in (best, found.words):
        assert edits.risk(said) >= expected(said, everything) - 1e-9
    assert len(found.confidences) == len(found.words)
    assert all(0.0 < sure <= 1.0 for sure in found.confidences)


@given(
    st.lists(
        st.lists(st.integers(0, 30).map(lambda n: n / 10), min_size=1, max_size=3),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=60, deadline=None)
def test_exact_where_all_paths_have_the_same_places(bins: list[list[float]]) -> None:
    """Words of a place are said nowhere else: the least of all errors, by trying all sequences."""
    lat = sausage(bins)
    everything = distribution(word_lattice(lat, SCALING))
    found = consensus(lat, SCALING, beam=np.inf)
    least = min(expected(said, everything) for said in everything)
    assert expected(found.words, everything) == pytest.approx(least, abs=1e-9)
    assert found.risk == pytest.approx(least, abs=1e-3)
    shares = np.array([1 - sure for sure in found.confidences])
    assert shares.sum() == pytest.approx(least, abs=1e-6)


def test_words_and_confidences_fit_where_there_is_no_end_of_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last change was taken without its confidences."""
    monkeypatch.setattr(consensus_module, "ROUNDS", 1)
    # one word is the best path; a word more, whichever it is, is likelier
    rows = [(1, 1, 1.0, 0.0, 2)] + [(1, word, 2.0, 0.0, 1) for word in (2, 3, 4)]
    rows += [(1, 5, 0.0, 0.0, 2)]
    final = np.array([[np.inf] * 2, [np.inf] * 2, [0, 0]], np.float32)
    lat = Lattice(final, np.array([0, 4, 5, 5]), np.array(rows, ARC))
    scaling = Scaling(acoustic_scale=1.0)
    assert best_paths(lat, [scaling])[0].words.tolist() == [1]
    found = consensus(lat, scaling)
    assert len(found.confidences) == len(found.words)
    edits = Edits(word_lattice(lat, scaling))
    assert found.risk == pytest.approx(edits.risk(found.words), abs=1e-9)


@given(lattices())
@settings(max_examples=50, deadline=None)
def test_something_stands_for_every_place(lat: Lattice) -> None:
    slots = np.array([0, 1, 0, 2, 0])
    risk, gamma = Edits(word_lattice(lat, SCALING)).statistics(slots)
    assert gamma.sum(0) == pytest.approx(np.ones(len(slots)), abs=1e-9)
    assert gamma.min() >= 0.0
    assert risk == pytest.approx(Edits(word_lattice(lat, SCALING)).risk((1, 2)), abs=1e-12)


def test_fewer_expected_errors_on_average() -> None:
    """The bound is no guarantee for one lattice; over many it pays."""
    rng = np.random.default_rng(1)
    scaling = Scaling(acoustic_scale=1.0)
    before = after = 0.0
    worse = 0
    for _ in range(100):
        lat = _random(rng)
        everything = distribution(word_lattice(lat, scaling))
        best = tuple(best_paths(lat, [scaling])[0].words.tolist())
        errors = expected(best, everything)
        found = expected(consensus(lat, scaling, beam=np.inf).words, everything)
        before, after, worse = before + errors, after + found, worse + (found > errors + 1e-9)
    assert after < 0.98 * before
    assert worse <= 2


def _random(rng: np.random.Generator) -> Lattice:
    """Six states, eleven words or silences between them."""
    rows = [(i, i + 1) for i in range(5)]
    rows += [tuple(sorted(rng.choice(6, 2, replace=False).tolist())) for _ in range(6)]
    rows.sort()
    arcs = np.zeros(len(rows), ARC)
    arcs["ilabel"], arcs["olabel"] = 1, rng.integers(0, 5, len(rows))
    arcs["graph"], arcs["next"] = rng.exponential(1.0, len(rows)), [high for _, high in rows]
    final = np.full((6, 2), np.inf, np.float32)
    final[-1] = 0.0
    counts = np.bincount([low for low, _ in rows], minlength=6)
    return Lattice(final, np.concatenate([[0], np.cumsum(counts)]), arcs)


def test_silent_words_do_not_count() -> None:
    """The best path says the one of two words whose other half is silence."""
    lat = two_words([0.0, 0.1, 0.2])  # words 1, 1 and 1 at the same place
    assert consensus(lat, SCALING, silent={3}).words == (1,)
    assert consensus(lat, SCALING).words == (1, 3)


@given(lattices(), st.lists(st.integers(1, 3), max_size=3))
@settings(max_examples=100, deadline=None)
def test_the_nearest_path_has_fewest_edits(lat: Lattice, words: list[int]) -> None:
    everything = paths_of(lat, SCALING)
    least = min(distance(tuple(words), tuple(said)) for _, said in everything)
    cost = min(c for c, said in everything if distance(tuple(words), tuple(said)) == least)
    path = nearest_path(lat, words, SCALING)
    assert path.words.tolist() == words
    # one of the paths that are as near, and the cheapest of these
    ids = path.graph + SCALING.acoustic_scale * path.acoustic
    said = min((abs(ids - c + SCALING.word_penalty * len(w)), c, w) for c, w in everything)
    assert said[0] < 1e-5
    assert path.cost == pytest.approx(cost, abs=1e-4)
    assert np.all(np.diff(path.word_frames) >= 0)


YES, NO, SIL = 1, 2, 3
SHARES = {(YES, YES): 0.4, (NO, SIL, YES): 0.3, (NO, NO): 0.3}


@pytest.fixture
def decoded(tmp_path: Path) -> list[str]:
    """Arguments of the commands: an utterance whose best path is not what most paths say."""
    folder, data = tmp_path / "decode", tmp_path / "dev"
    (folder / "phones").mkdir(parents=True)
    (folder / "words.txt").write_text("<eps> 0\nyes 1\nno 2\n!SIL 3\n")
    (folder / "phones/align_lexicon.int").write_text("1 1 1\n2 2 1\n3 3 1\n")
    one = np.ones(2, np.int32)
    Transitions(one, one, one.astype(bool), ~one.astype(bool)).write(folder / "transitions.npz")
    rows, state = [], 1
    for said, share in SHARES.items():
        nodes = [0, *range(state, state + len(said) - 1), 5]
        state += len(said) - 1
        for i, word in enumerate(said):
            rows.append((nodes[i], (1, word, -math.log(share) * (i == 0), 0.0, nodes[i + 1])))
    rows.sort(key=lambda row: row[0])
    first = np.concatenate([[0], np.cumsum(np.bincount([s for s, _ in rows], minlength=6))])
    final = np.full((6, 2), np.inf, np.float32)
    final[5] = 0.0
    lat = Lattice(final, first, np.array([row for _, row in rows], ARC))
    with (folder / "lat.1.gz").open("wb") as stream:
        stream.write(lattice_io.entry("a-1", lat))
    data.mkdir()
    (data / "utt2spk").write_text("a-1 a\n")
    (data / "text").write_text("a-1 no yes\n")
    return ["--decode", str(folder), "--data", str(data)]


@pytest.mark.parametrize(("risk", "said"), [(False, "yes yes"), (True, "no yes")])
def test_tune_and_score_say_what_the_config_asks(
    decoded: list[str], tmp_path: Path, risk: bool, said: str
) -> None:
    config, tuned, out = tmp_path / "c.yaml", tmp_path / "tuned.json", tmp_path / "score"
    asked = f"scoring: {{minimum_bayes_risk: {str(risk).lower()}, word_penalties: [0.0]}}\n"
    config.write_text(f"name: t\ncorpus: {{kind: an4}}\n{asked}")
    common = ["--config", str(config), *decoded]
    assert main(["tune", *common, "--out", str(tuned)]) == 0
    assert json.loads(tuned.read_text())["errors"] == (0 if risk else 1)
    assert main(["score", *common, "--tuned", str(tuned), "--out", str(out)]) == 0
    assert (out / "hyp.txt").read_text() == f"a-1 {said}\n"
    rows = [line.split() for line in (out / "ctm").read_text().splitlines()]
    assert [row[4] for row in rows] == said.split()
    if risk:  # silence of a frame lies between them
        assert [float(row[2]) for row in rows] == [0.0, 0.02]
        assert [float(row[5]) for row in rows] == pytest.approx([0.6, 0.7], abs=1e-4)


def test_words_that_are_spelled_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "c.yaml"
    asked = "lm: {pieces: 10}\nscoring: {minimum_bayes_risk: true}\n"
    config.write_text(f"name: t\ncorpus: {{kind: an4}}\n{asked}")
    arguments = ["tune", "--config", str(config), "--decode", ".", "--data", ".", "--out", "x"]
    assert main(arguments) == 2
    assert "scoring.minimum_bayes_risk: not with lm.pieces" in capsys.readouterr().err
