"""Search, lattices and word times: against Kaldi's results, and by brute force."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hadpsgd import kaldi_io
from hadpsgd.cli import main
from hadpsgd.config.decoding import Decoding
from hadpsgd.decoding import lattice, lattice_io
from hadpsgd.decoding.confidence import confidences
from hadpsgd.decoding.decode import Scorer, Work, batched, decode
from hadpsgd.decoding.forward_backward import ForwardBackward, arc_posteriors
from hadpsgd.decoding.grammar import Grammar
from hadpsgd.decoding.lattice import ARC, Lattice, Scaling, best_paths, topologically_sorted
from hadpsgd.decoding.nbest import nbest
from hadpsgd.decoding.network import by_length
from hadpsgd.decoding.rescore import Rescorer
from hadpsgd.decoding.search import Searcher
from hadpsgd.decoding.word_times import Span, WordAligner, phone_spans
from hadpsgd.errors import UserError
from hadpsgd.gmm import transition_model
from hadpsgd.graph import arrays
from hadpsgd.graph.transitions import Transitions
from hadpsgd.lm import train
from hadpsgd.lm.prune import prune
from hadpsgd.lm.vocabulary import Vocabulary

SCALE = 0.0833


@pytest.fixture(scope="module")
def kaldi(shared: Path) -> Path:
    return shared / "kaldi_an4"


@pytest.fixture(scope="module")
def graph(kaldi: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kaldi's own graph, with what our graph folders hold beside it."""
    folder = tmp_path_factory.mktemp("graph")
    (folder / "HCLG.fst").symlink_to(kaldi / "exp/tri3b/graph/HCLG.fst")
    for name in ("words.txt", "phones.txt", "phones"):
        (folder / name).symlink_to(kaldi / "lang" / name)
    model = transition_model.read(kaldi / "exp/tri3b/final.mdl")
    Transitions.of(model).write(folder / "transitions.npz")
    return folder


@dataclass(frozen=True)
class Golden:
    """Kaldi's scores of 20 utterances, as a maker of scorers."""

    path: Path
    faults: tuple[tuple[str, str], ...] = ()

    def __call__(self) -> Scorer:
        scores = dict(kaldi_io.iterate(self.path / "golden/gmm_loglikes_test20.ark.gz"))
        for utterance, kind in self.faults:
            if kind == "nan":
                scores[utterance] = np.full_like(scores[utterance], np.nan)
            elif kind == "empty":
                scores[utterance] = scores[utterance][:0]
            elif kind == "narrow":
                scores[utterance] = scores[utterance][:, :-1]
            elif kind == "short":
                scores[utterance] = scores[utterance][:40]
        return scores.__getitem__


def golden_words(kaldi: Path) -> dict[str, list[str]]:
    lines = (kaldi / "golden/bestpath_words_test20.txt").read_text().splitlines()
    return {line.split()[0]: line.split()[1:] for line in lines}


def symbols(path: Path) -> dict[int, str]:
    rows = (line.split() for line in path.read_text().splitlines())
    return {int(number): name for name, number in rows}


@pytest.mark.parametrize(("one_best", "jobs"), [(False, 1), (True, 1), (False, 2)])
def test_the_words_of_kaldi(
    kaldi: Path, graph: Path, tmp_path: Path, one_best: bool, jobs: int
) -> None:
    options = Decoding(acoustic_scale=SCALE, one_best=one_best)
    wanted = golden_words(kaldi)
    work = Work(Searcher(graph, options), Golden(kaldi))
    report = decode(work, list(wanted), tmp_path / "out", jobs, 0.0)
    assert report["failed"] == report["partial"] == []
    names = symbols(kaldi / "lang/words.txt")
    found = {
        utterance: [names[word] for word in best_paths(lat, [Scaling(SCALE)])[0].words.tolist()]
        for utterance, lat in lattice_io.read(tmp_path / "out")
    }
    assert found == wanted
    assert list(found) == list(wanted)
    assert (tmp_path / "out" / "words.txt").exists()


def found(searcher: Searcher, scores: NDArray[np.float32]) -> Lattice:
    lat = searcher(scores).lattice
    assert lat is not None
    return lat


def test_costs_add_up(kaldi: Path, graph: Path) -> None:
    """Acoustic costs of a path are the scores that it passes, not scaled."""
    searcher = Searcher(graph, Decoding(acoustic_scale=SCALE))
    pdf = searcher.transitions.pdf
    for _, scores in list(kaldi_io.iterate(kaldi / "golden/gmm_loglikes_test20.ark.gz"))[:5]:
        path = best_paths(found(searcher, scores), [Scaling(SCALE)])[0]
        assert len(path.transitions) == len(scores)
        acoustic = -scores[np.arange(len(scores)), pdf[path.transitions]].sum(dtype=np.float64)
        assert path.acoustic == pytest.approx(acoustic, rel=1e-5)
        assert path.cost == pytest.approx(path.graph + SCALE * path.acoustic, rel=1e-6)


def test_kaldis_own_alignments_have_kaldis_phones(kaldi: Path) -> None:
    transitions = Transitions.of(transition_model.read(kaldi / "exp/tri3b_ali/final.mdl"))
    names = symbols(kaldi / "lang/phones.txt")
    wanted: dict[str, list[tuple[int, int, str]]] = {}
    for line in (kaldi / "golden/phone_ctm_train.txt").read_text().splitlines():
        utterance, _, begin, length, phone = line.split()
        first, frames = round(float(begin) * 100), round(float(length) * 100)
        wanted.setdefault(utterance, []).append((first, first + frames, phone))
    wanted.popitem()  # the file ends within its last utterance
    checked = 0
    for job in (1, 2):
        for utterance, ids in kaldi_io.iterate(kaldi / f"exp/tri3b_ali/ali.{job}.gz", "ints"):
            if utterance not in wanted:
                continue
            nothing = np.zeros(0, np.int32)
            path = lattice.Path(ids, nothing, nothing, 0.0, 0.0, 0.0)
            spans = phone_spans(path, transitions)
            assert [(s.begin, s.end, names[s.label]) for s in spans] == wanted[utterance]
            checked += 1
    assert checked == len(wanted) > 0


def test_faults_of_scores_are_named(kaldi: Path, graph: Path, tmp_path: Path) -> None:
    names = list(golden_words(kaldi))[:4]
    searcher = Searcher(graph, Decoding(acoustic_scale=SCALE))
    for kind, message in (("nan", "not finite"), ("narrow", "for a graph of 424 pdfs")):
        work = Work(searcher, Golden(kaldi, ((names[1], kind),)))
        with pytest.raises(UserError, match=rf"{names[1]}: .*{message}"):
            decode(work, names, tmp_path / "out", 1, 0.0)
        assert not (tmp_path / "out").exists()


def test_partial_and_failed_utterances_are_counted(
    kaldi: Path, graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = list(golden_words(kaldi))[:4]
    faults = ((names[0], "short"), (names[2], "empty"))
    work = Work(Searcher(graph, Decoding(acoustic_scale=SCALE, beam=4.0)), Golden(kaldi, faults))
    report = decode(work, names, tmp_path / "out", 1, 0.25)
    assert report["failed"] == [names[2]]
    assert names[0] in report["partial"]
    assert [name for name, _ in lattice_io.read(tmp_path / "out")] == [names[0], names[1], names[3]]
    assert "1 of 4 utterances have no path" in capsys.readouterr().err
    assert json.loads((tmp_path / "out/decode.json").read_text())["utterances"] == 4
    with pytest.raises(UserError, match="1 of 4 utterances have no path"):
        decode(work, names, tmp_path / "other", 1, 0.2)


def test_a_missing_graph_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"transitions.npz: missing"):
        Searcher(tmp_path, Decoding())


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
            price += scaling.word_penalty * len(spoken)
            walk(int(arc["next"]), cost + price, words + spoken)

    walk(0, 0.0, [])
    return found


SCALINGS = [Scaling(1.0), Scaling(0.1), Scaling(0.5, 1.0), Scaling(2.0, -0.5)]


@given(lattices())
@settings(max_examples=100, deadline=None)
def test_best_paths_against_all_paths(lat: Lattice) -> None:
    for scaling, path in zip(SCALINGS, best_paths(lat, SCALINGS), strict=True):
        everything = paths_of(lat, scaling)
        least = min(cost for cost, _ in everything)
        assert path.cost == pytest.approx(least, abs=1e-6)
        assert any(
            cost == pytest.approx(least, abs=1e-6) and words == path.words.tolist()
            for cost, words in everything
        )
        total = path.graph + scaling.acoustic_scale * path.acoustic
        total += scaling.word_penalty * len(path.words)
        assert total == pytest.approx(path.cost, abs=1e-5)


@given(lattices())
@settings(max_examples=50, deadline=None)
def test_archives_bring_lattices_back(lat: Lattice) -> None:
    back = lattice_io.parse(lattice_io.encode(lat))
    assert np.array_equal(back.final, lat.final)
    assert np.array_equal(back.first, lat.first)
    assert np.array_equal(back.arcs, lat.arcs)


@given(lattices(), st.permutations(range(7)))
@settings(max_examples=50, deadline=None)
def test_states_in_any_order_are_sorted(lat: Lattice, order: list[int]) -> None:
    places = [i for i in order if i < lat.num_states]
    arcs = lat.arcs.copy()
    rank = np.argsort(places)
    arcs["next"] = rank[arcs["next"]]
    by_source = np.argsort(rank[lat.sources], kind="stable")
    first = np.concatenate([[0], np.cumsum(np.diff(lat.first)[places])])
    mixed = Lattice(lat.final[places], first, arcs[by_source])
    back = topologically_sorted(mixed, int(rank[0]))
    assert np.all(back.arcs["next"] > back.sources)
    for scaling in SCALINGS:
        assert sorted(paths_of(back, scaling)) == sorted(paths_of(lat, scaling))


@given(st.integers(1, 300), st.integers(1, 40), st.integers(1, 9))
def test_batches_are_even_and_as_many_for_each(number: int, size: int, jobs: int) -> None:
    batches = batched(range(number), size, jobs)
    assert [item for batch in batches for item in batch] == list(range(number))
    sizes = [len(batch) for batch in batches]
    assert min(sizes) >= 1 and max(sizes) <= size and max(sizes) - min(sizes) <= 1
    assert len(batches) % jobs == 0 or len(batches) == number


def test_utterances_of_like_length_go_together(tmp_path: Path) -> None:
    (tmp_path / "utt2num_frames").write_text("a 20\nb 300\nc 20\n")
    table = [tmp_path / "utt2num_frames"]
    assert by_length(["a", "b", "c"], table) == ["b", "a", "c"]
    assert by_length(["c", "a"], []) == ["c", "a"]


def test_nothing_said_has_no_confidences() -> None:
    arcs = np.array([(1, 0, 0.0, 0.0, 1), (1, 5, 3.0, 0.0, 1)], ARC)
    final = np.array([[np.inf, np.inf], [0, 0]], np.float32)
    lat = Lattice(final, np.array([0, 2, 2]), arcs)
    [path] = best_paths(lat, [Scaling(1.0)])
    assert len(path.words) == 0 and confidences(lat, path, Scaling(1.0)) == []


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_single_path_comes_back(size: int) -> None:
    """Chains are read at once; one state whose arc leads elsewhere is no chain."""
    final = np.full((size, 2), np.inf, np.float32)
    final[-1] = 1.5, 2.0
    rows = [(i + 3, i % 2, i / 2, -i / 4, i + 1) for i in range(size - 1)]
    arcs = np.array(rows, ARC)
    first = np.append(np.arange(size), size - 1)
    for change in (None, "next") if size > 2 else (None,):
        if change:
            arcs["next"][0] = 2
        back = lattice_io.parse(lattice_io.encode(Lattice(final, first, arcs)))
        assert back.arcs.tolist() == arcs.tolist()
        assert np.array_equal(back.final, final) and np.array_equal(back.first, first)


def test_damaged_archives_are_named(tmp_path: Path) -> None:
    final = np.array([[np.inf, np.inf], [0, 0]], np.float32)
    lat = Lattice(final, np.array([0, 1, 1]), np.array([(1, 2, 0.5, 1.5, 1)], ARC))
    good = lattice_io.entry("u1", lattice_io.encode(lat))
    good += lattice_io.entry("u2", lattice_io.encode(lat))
    (tmp_path / "lat.1.gz").write_bytes(good)
    assert [name for name, _ in lattice_io.read(tmp_path)] == ["u1", "u2"]
    (tmp_path / "lat.1.gz").write_bytes(good[:-30])
    with pytest.raises(UserError, match=r"lat\.1\.gz.*: damaged or no lattice archive \(cut short"):
        list(lattice_io.read(tmp_path))
    (tmp_path / "lat.1.gz").write_bytes(b"no archive")
    with pytest.raises(UserError, match=r"lat\.1\.gz: damaged or no lattice archive"):
        list(lattice_io.read(tmp_path))
    (tmp_path / "lat.1.gz").unlink()
    with pytest.raises(UserError, match=r"no lat\.\*\.gz"):
        list(lattice_io.read(tmp_path))


def aligned(words: list[int], phones: list[int], aligner: WordAligner) -> list[tuple[int, ...]]:
    spans = [Span(phone, 3 * i, 3 * i + 3) for i, phone in enumerate(phones)]
    frames = np.arange(len(words), dtype=np.int32)
    ids = np.zeros(3 * len(phones), np.int32)
    path = lattice.Path(ids, np.array(words, np.int32), frames, 0.0, 0.0, 0.0)
    return [(s.label, s.begin // 3, s.end // 3) for s in aligner.words(path, spans)]


def test_words_get_the_phones_of_their_pronunciations() -> None:
    aligner = WordAligner({0: [(1,)], 5: [(10,), (10, 11)], 6: [(11, 12)], 7: [(1,)]})
    # 10 11 12: word 5 must leave 11 to word 6
    assert aligned([5, 6], [1, 10, 11, 12, 1], aligner) == [(5, 1, 2), (6, 2, 4)]
    assert aligned([5, 6], [10, 11, 1, 1, 11, 12], aligner) == [(5, 0, 2), (6, 4, 6)]
    assert aligned([7], [1], aligner) == [(7, 0, 1)]
    assert aligned([5, 6], [10, 11], aligner) == [(5, 0, 1), (6, 1, 2)]  # cut off
    assert aligned([], [1, 1], aligner) == []
    assert aligner.unaligned == 0
    aligned([6], [10], aligner)
    assert aligner.unaligned == 1


def test_network_scores_are_log_posteriors_minus_log_priors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from hadpsgd.decoding import network
    from hadpsgd.models.blstm import BLSTM
    from hadpsgd.models.build import ModelMeta, SavedShape, save_model

    shape = SavedShape(1, 8, 6, 0.0)
    model = BLSTM(shape, 5, 4, seed=3)
    priors = torch.tensor([0.5, 0.3, 0.2, 0.0]).log()
    meta = ModelMeta(shape, 5, ("logmel",), 4, priors)
    save_model(tmp_path / "final.pt", model, meta)
    features = np.random.default_rng(0).normal(size=(13, 5)).astype(np.float32)

    class Fake:
        utterances = ("u",)

        def __init__(self, *_: object) -> None: ...

        def __getitem__(self, _: str) -> NDArray[np.float32]:
            return features

    @dataclass
    class Inputs:
        input: tuple[str, ...] = ("logmel",)

    @dataclass
    class FakeConfig:
        features: Inputs

    monkeypatch.setattr(network, "Fusion", Fake)
    monkeypatch.setattr(network, "read_data", lambda _: None)
    make: Callable[..., network.NetworkScorer] = network.NetworkScorer
    scorer = make(FakeConfig(Inputs()), tmp_path / "final.pt", tmp_path, tmp_path)
    got = scorer()("u")
    with torch.no_grad():
        posterior = torch.softmax(model(torch.from_numpy(features)[None])[0], 1).numpy()
    wanted = np.log(posterior[:, :3]) - np.log([0.5, 0.3, 0.2])
    assert got[:, :3] == pytest.approx(wanted, abs=1e-4)
    assert np.all(got[:, 3] < -1000)
    with pytest.raises(UserError, match=r"trained on \['logmel'\], config has"):
        make(FakeConfig(Inputs(("fmllr",))), tmp_path / "final.pt", tmp_path, tmp_path)()


def all_words(lat: Lattice, scaling: Scaling) -> dict[tuple[int, ...], float]:
    """Best cost of every word sequence."""
    best: dict[tuple[int, ...], float] = {}
    for cost, words in paths_of(lat, scaling):
        best[tuple(words)] = min(cost, best.get(tuple(words), np.inf))
    return best


@given(lattices())
@settings(max_examples=60, deadline=None)
def test_nbest_against_all_paths(lat: Lattice) -> None:
    for scaling in SCALINGS:
        wanted = sorted(all_words(lat, scaling).values())
        found = nbest(lat, scaling, 1000, beam=np.inf)
        assert [h.cost for h in found] == pytest.approx(wanted, abs=1e-5)
        costs = all_words(lat, scaling)
        assert all(costs[h.words] == pytest.approx(h.cost, abs=1e-5) for h in found)
        for h in found:
            total = h.graph + scaling.acoustic_scale * h.acoustic
            total += scaling.word_penalty * len(h.words)
            assert total == pytest.approx(h.cost, abs=1e-5)
        narrow = nbest(lat, scaling, 1000, beam=1.0)
        kept = [cost for cost in wanted if cost <= wanted[0] + 1.0 - 1e-4]
        assert [h.cost for h in narrow][: len(kept)] == pytest.approx(kept, abs=1e-5)


@given(lattices())
@settings(max_examples=60, deadline=None)
def test_forward_and_backward_against_all_paths(lat: Lattice) -> None:
    for scaling in SCALINGS:
        costs = [cost for cost, _ in paths_of(lat, scaling)]
        best = ForwardBackward(lat, scaling, best=True)
        assert best.total == pytest.approx(min(costs), abs=1e-6)
        assert best.through.min() >= min(costs) - 1e-6
        sums = ForwardBackward(lat, scaling, best=False)
        assert sums.total == pytest.approx(-np.log(np.exp(-np.array(costs)).sum()), abs=1e-6)
        posteriors = arc_posteriors(lat, scaling)
        assert np.all((posteriors >= 0) & (posteriors <= 1 + 1e-9))
        # what enters a state leaves it, or ends there
        into = np.bincount(lat.arcs["next"], posteriors, lat.num_states)
        out = np.bincount(lat.sources, posteriors, lat.num_states)
        ends = np.exp(sums.total - sums.forward - sums.final)
        into[0] += 1.0
        assert into == pytest.approx(out + ends, abs=1e-6)


def two_words(graph: list[float]) -> Lattice:
    """Frames 0 and 1 say a word each; word 1 or 2 first, then word 3."""
    final = np.array([[np.inf] * 2, [np.inf] * 2, [0, 0]], np.float32)
    rows = [(1, i + 1, g, 0.0, 1) for i, g in enumerate(graph)] + [(1, 3, 0.0, 0.0, 2)]
    first = np.array([0, len(graph), len(graph) + 1, len(graph) + 1])
    return Lattice(final, first, np.array(rows, ARC))


def test_confidence_is_the_share_of_the_probability() -> None:
    lat = two_words([0.0, np.log(3.0)])
    path = best_paths(lat, [Scaling(1.0)])[0]
    assert confidences(lat, path, Scaling(1.0)) == pytest.approx([0.75, 1.0], abs=1e-6)
    single = two_words([0.5])
    assert confidences(single, best_paths(single, [Scaling(1.0)])[0], Scaling(1.0)) is None


def test_confidence_means_what_it_says(kaldi: Path, graph: Path) -> None:
    """Words with high confidence are right more often than words with low confidence."""
    searcher = Searcher(graph, Decoding(acoustic_scale=SCALE))
    names = symbols(kaldi / "lang/words.txt")
    lines = (kaldi / "data/test/text").read_text().splitlines()
    texts = {line.split()[0]: line.split()[1:] for line in lines}
    right: list[float] = []
    wrong: list[float] = []
    for utterance, scores in kaldi_io.iterate(kaldi / "golden/gmm_loglikes_test20.ark.gz"):
        lat = found(searcher, scores)
        path = best_paths(lat, [Scaling(SCALE)])[0]
        sure = confidences(lat, path, Scaling(SCALE)) or []
        said = [names[word] for word in path.words.tolist()]
        for word, confidence in zip(said, sure, strict=True):
            (right if word in texts[utterance] else wrong).append(confidence)
    assert len(right) > 60
    assert len(wrong) >= 5
    assert np.mean(right) > np.mean(wrong) + 0.05


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
@settings(max_examples=100, deadline=None)
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
            lat = found(searcher, scores)
            words.append(best_paths(lat, [Scaling(SCALE)])[0].words.tolist())
        same += words[0] == words[1]
        total += 1
    assert total == 6
    assert same == total
