"""Training of GMM-HMMs: Viterbi, updates, splitting; against brute force and Kaldi."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from gmm_toy import toy
from hypothesis import given, settings
from hypothesis import strategies as st

from hadpsgd.corpus.datadir import DataDir
from hadpsgd.corpus.lang import topology
from hadpsgd.features.fmllr import read_transforms
from hadpsgd.features.frontend import Frontend
from hadpsgd.gmm import diag_gmm, event_map, model, transition_model, viterbi
from hadpsgd.gmm.checkpoint import Checkpoint
from hadpsgd.gmm.compilation import compile_graphs
from hadpsgd.gmm.data import Lang, fill, word_ids
from hadpsgd.gmm.em import Passes, Search
from hadpsgd.gmm.equal_alignment import equal_alignment
from hadpsgd.gmm.flat_start import monophone_tree
from hadpsgd.gmm.pipeline import Pipeline, spliced
from hadpsgd.gmm.statistics import Statistics, accumulate
from hadpsgd.gmm.training import Schedule, State, train
from hadpsgd.gmm.training_graph import ARC, Graph, GraphCompiler
from hadpsgd.gmm.update import (
    MIN_SPLIT_COUNT,
    TRANSITION_FLOOR,
    Growth,
    estimate,
    scaled_scores,
    split,
    split_targets,
    update,
    update_transitions,
)
from hadpsgd.gmm.workspace import Workspace
from hadpsgd.kaldi_binary import read_matrix
from hadpsgd.kaldi_io import iterate


def random_graph(random: np.random.Generator, states: int) -> Graph:
    """States in a row, some with self-loops, some skipped; ids count arcs."""
    arcs, ends = [], []
    for state in range(1, states + 1):
        if random.random() < 0.7:
            arcs.append((state, state))
        arcs.append((state - 1, state))
        if state > 2 and random.random() < 0.4:
            arcs.append((state - 2, state))
    rows = [
        (source, target, number + 1 if source else 0, float(random.random()))
        for number, (source, target) in enumerate(arcs)
    ]
    table = np.array(rows, ARC)
    for state in {states, max(1, states - 1)}:
        ends.append((state, -1, len(rows) + state, float(random.random())))
    pdfs = np.arange(-1, states, dtype=np.int32)
    return Graph(pdfs, table[np.argsort(table["target"], kind="stable")], np.array(ends, ARC))


def best_by_force(
    graph: Graph, emission: np.ndarray, scores: np.ndarray, beam: float = np.inf
) -> float:
    """The best score over all paths that the beam leaves, one by one."""
    paths = {0: [0.0]}
    for row in emission:
        after: dict[int, list[float]] = {}
        for source, target, tid, cost in graph.arcs.tolist():
            for score in paths.get(source, ()):
                total = score + scores[tid] - cost + row[target]
                after.setdefault(target, []).append(total)
        best = max(itertools.chain(*after.values()), default=-np.inf)
        paths = {state: [x for x in some if x >= best - beam] for state, some in after.items()}
    totals = [
        score + scores[tid] - cost
        for source, _, tid, cost in graph.ends.tolist()
        for score in paths.get(source, ())
    ]
    return max(totals, default=-np.inf)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**31),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    beam=st.sampled_from([0.5, 2.0, np.inf]),
)
def test_viterbi_finds_the_best_path_within_the_beam(
    seed: int, sizes: list[int], beam: float
) -> None:
    random = np.random.default_rng(seed)
    graphs = [random_graph(random, size) for size in sizes]
    lengths = random.integers(1, 7, len(graphs))
    emissions = [
        random.standard_normal((length, len(graph.pdfs))).astype(np.float32)
        for length, graph in zip(lengths, graphs, strict=True)
    ]
    scores = random.standard_normal(40).astype(np.float32)
    scores[0] = 0.0
    found = viterbi.align(graphs, lengths, lambda u: emissions[u].copy(), scores, (beam,))
    for graph, emission, result in zip(graphs, emissions, found, strict=True):
        best = best_by_force(graph, emission, scores, beam)
        if result is None:
            assert best == -np.inf
            continue
        assert result.score == pytest.approx(best, abs=1e-4)
        assert len(result.ids) == len(emission) and 0 <= result.gap <= beam + 1e-5


@settings(max_examples=30)
@given(seed=st.integers(0, 2**31), states=st.integers(1, 6), frames=st.integers(1, 15))
def test_equal_alignment_is_a_path_of_the_graph(seed: int, states: int, frames: int) -> None:
    random = np.random.default_rng(seed)
    graph = random_graph(random, states)
    ids = equal_alignment(graph, frames, random)
    flat = np.zeros((frames, len(graph.pdfs)), np.float32)
    possible = viterbi.align([graph], [frames], lambda _: flat, np.zeros(60, np.float32))[0]
    if ids is None:
        return  # a random path may be too long, or have no state that can wait
    assert possible is not None and len(ids) == frames and (ids > 0).all()
    known = set(graph.arcs["id"].tolist()) | set(graph.ends["id"].tolist())
    assert set(ids.tolist()) <= known


def test_equal_alignments_begin_with_silence_as_often_as_kaldis(shared: Path) -> None:
    """Silence's first state is left in three ways, that of YES in one: three of four begin so."""
    lang = Lang(shared / "kaldi_an4/lang")
    topo = topology.read_text(lang.folder / "topo")
    tree = monophone_tree(lang.rows(name="phones/sets.int"), topo)
    transitions = transition_model.make(tree, topo)
    graph = GraphCompiler(lang.lexicon, tree, transitions)([lang.words["YES"]])
    paths = [equal_alignment(graph, 60, np.random.default_rng(seed)) for seed in range(400)]
    first = [transitions.phone[ids[0]] <= 10 for ids in paths if ids is not None]
    assert len(first) == 400 and np.mean(first) == pytest.approx(0.75, abs=0.05)
    again = equal_alignment(graph, 60, np.random.default_rng(7))
    np.testing.assert_array_equal(again, paths[7])


def mixtures(random: np.random.Generator, sizes: list[int], dim: int) -> diag_gmm.Mixtures:
    count = sum(sizes)
    weights = np.concatenate([random.dirichlet(np.ones(size)) for size in sizes])
    means = random.standard_normal((count, dim))
    return diag_gmm.make(sizes, weights, means, random.uniform(0.5, 2, (count, dim)))


@settings(max_examples=20)
@given(seed=st.integers(0, 2**31))
def test_an_update_raises_the_likelihood(seed: int) -> None:
    random = np.random.default_rng(seed)
    before = mixtures(random, [1, 3, 2], 4)
    pdf_of_id = np.array([-1, 0, 1, 2], np.int32)
    ids = random.integers(0, 4, 600).astype(np.int32)
    features = random.standard_normal((600, 4)).astype(np.float32) * 2 + ids[:, None]
    sums = accumulate(before, features, ids, pdf_of_id)
    assert sums.frames == (ids > 0).sum()
    after = estimate(before, sums, 1.0, prior=0.0)
    again = accumulate(after, features, ids, pdf_of_id)
    assert again.likelihood >= sums.likelihood - 1e-3
    # a pdf of one Gaussian has the mean and variance of its frames
    own = features[ids == 1].astype(np.float64)
    np.testing.assert_allclose(after.means[0], own.mean(axis=0), atol=1e-4)
    np.testing.assert_allclose(after.variances[0], own.var(axis=0), rtol=1e-3)


def test_variances_of_few_frames_are_drawn_to_the_pdfs_mean() -> None:
    random = np.random.default_rng(4)
    before = mixtures(random, [3], 2)
    sums = Statistics.zeros(gaussians=3, dim=2, num_ids=1)
    sums.occupancy[:] = [20, 200, 2000]
    own = np.array([[0.1, 4.0], [1.0, 1.0], [2.0, 3.0]])
    sums.second[:] = own * sums.occupancy[:, None]  # means are 0
    shared = (own * sums.occupancy[:, None]).sum(axis=0) / sums.occupancy.sum()
    found = estimate(before, sums, prior=40.0).variances
    expected = (own * sums.occupancy[:, None] + 40 * shared) / (sums.occupancy[:, None] + 40)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(estimate(before, sums, prior=0.0).variances, own, rtol=1e-5)


def test_gaussians_with_too_few_frames_go_but_the_last_one_stays() -> None:
    random = np.random.default_rng(0)
    before = mixtures(random, [3, 2], 2)
    sums = Statistics.zeros(gaussians=5, dim=2, num_ids=2)
    sums.occupancy[:] = [50, 3, 40, 2, 4]
    sums.first[:] = before.means * sums.occupancy[:, None]
    sums.second[:] = (before.variances + before.means**2) * sums.occupancy[:, None]
    after = estimate(before, sums)
    assert np.diff(after.offsets).tolist() == [2, 1]
    np.testing.assert_allclose(after.weights, [50 / 90, 40 / 90, 1], rtol=1e-6)
    np.testing.assert_allclose(after.means[2], before.means[4], rtol=1e-5)  # kept as it was
    everything = estimate(before, sums, remove=False)
    assert np.diff(everything.offsets).tolist() == [3, 2]


@settings(max_examples=40)
@given(
    counts=st.lists(st.floats(0, 5000), min_size=1, max_size=30),
    gaussians=st.integers(1, 200),
    power=st.sampled_from([0.2, 0.25, 1.0]),
)
def test_targets_obey_total_and_counts(counts: list[float], gaussians: int, power: float) -> None:
    targets = split_targets(np.array(counts), gaussians=gaussians, power=power)
    assert targets.min() >= 1 and targets.sum() <= max(gaussians, len(counts))
    enough = np.array(counts) > targets * MIN_SPLIT_COUNT
    assert (enough | (targets == 1)).all()
    if targets.sum() < gaussians:  # then no pdf had frames for one more
        assert ((targets + 1) * MIN_SPLIT_COUNT >= np.array(counts)).all()


@pytest.mark.parametrize("power", [0.25, 0.5, 1.0])
def test_targets_go_by_a_power_of_the_counts(power: float) -> None:
    """One more at a time to the pdf whose Gaussians have the most of it (GetSplitTargets)."""
    counts = np.array([90_000.0, 30_000, 7_000, 5_000, 800])
    expected = np.ones(5, int)
    while expected.sum() < 40:
        expected[np.argmax(counts**power / expected)] += 1
    assert split_targets(counts, gaussians=40, power=power).tolist() == expected.tolist()


def test_splitting_keeps_weights_and_centre() -> None:
    random = np.random.default_rng(1)
    before = mixtures(random, [2, 1], 3)
    after = split(before, np.array([5, 1]), random)
    assert np.diff(after.offsets).tolist() == [5, 1]
    np.testing.assert_allclose(after.per_pdf(after.weights.astype(float)), 1.0, rtol=1e-6)
    np.testing.assert_allclose(
        after.weights[:5] @ after.means[:5], before.weights[:2] @ before.means[:2], atol=0.02
    )
    assert len({tuple(row) for row in after.means[:5].tolist()}) == 5


class Frames(Passes):
    """Passes over frames that are always aligned as they are now."""

    def accumulate(self, model: model.Model, observed: Pipeline | None = None) -> Statistics:
        del observed
        random = np.random.default_rng(6)
        ids = random.integers(1, 3, 4000).astype(np.int32)
        features = random.standard_normal((4000, 2)).astype(np.float32)
        return accumulate(model.mixtures, features, ids, model.transitions.pdf)


class Unkept(Checkpoint):
    """For what has no files."""

    def begin(self, _: Schedule, __: Search, state: State, ___: object) -> tuple[int, State]:
        return 0, state


def test_gaussians_grow_as_in_kaldis_scripts() -> None:
    # --mix-up is the number to start with after iteration 1, then a step more after each one
    seen: list[int] = []

    def hook(_: int, state: State) -> State:
        seen.append(len(state.model.mixtures.weights))
        return state

    begin = State(Frames(None, Pipeline(0), 1), toy(np.zeros((1, 3, 2))).model)  # type: ignore
    schedule = Schedule(
        name="toy",
        iterations=9,
        realign=frozenset(),
        grow_until=4,
        start=6,
        gaussians=10,
        power=0.25,
        seed=1,
        prior=0.0,
    )
    final = train(schedule, begin, Search(), Unkept(Path()), hook)
    assert seen == [3, 6, 7, 8, 9, 10, 10, 10]  # one a pdf at first
    assert len(final.model.mixtures.weights) == 10


def test_singular_statistics_leave_a_finite_model() -> None:
    random = np.random.default_rng(2)
    before = mixtures(random, [2, 2], 3)
    features = np.ones((200, 3), np.float32)  # no variance at all
    ids = np.ones(200, np.int32)
    sums = accumulate(before, features, ids, np.array([-1, 0], np.int32))
    after = update(before, sums, Growth(gaussians=6), random)
    for values in (after.means, after.variances, after.gconsts, after.weights):
        assert np.isfinite(values).all()
    again = accumulate(after, features, ids, np.array([-1, 0], np.int32))
    assert np.isfinite(again.likelihood)


def test_transitions_are_shares_of_counts_floored(shared: Path) -> None:
    trained = model.read(shared / "kaldi_an4/exp/tri3b/final.mdl").transitions
    random = np.random.default_rng(3)
    counts = np.concatenate([[0.0], random.uniform(0, 100, trained.num_ids)])
    first = trained.first_id
    counts[first[0] : first[1]] = 1e-3  # too few: kept
    counts[first[5]], counts[first[5] + 1 : first[6]] = 1000.0, 0.1  # floored
    found = update_transitions(trained, counts)
    kept = slice(first[0], first[1])
    np.testing.assert_array_equal(found.log_probs[kept], trained.log_probs[kept])
    sums = np.bincount(found.state_of_id[1:], np.exp(found.log_probs[1:].astype(float)))
    np.testing.assert_allclose(sums, 1.0, atol=1e-5)
    assert np.exp(found.log_probs[1:]).min() > 0.9 * TRANSITION_FLOOR
    some = slice(first[9], first[10])
    np.testing.assert_allclose(
        np.exp(found.log_probs[some]), counts[some] / counts[some].sum(), rtol=1e-4
    )
    # with all scales 1 the scores are the log-probabilities
    np.testing.assert_allclose(
        scaled_scores(found, transition_scale=1.0, self_loop_scale=1.0)[1:],
        found.log_probs[1:],
        atol=1e-4,
    )


def test_splicing_stays_within_utterances() -> None:
    frames = np.arange(7, dtype=np.float32)[:, None]
    found = spliced(frames, np.array([0, 4, 7]), 2)
    for t, u in itertools.product(range(7), range(5)):
        low, high = (0, 3) if t < 4 else (4, 6)
        assert found[t, u] == min(max(t + u - 2, low), high)


def test_alignments_equal_kaldis(shared: Path, tmp_path: Path) -> None:
    """Kaldi's model and transforms: 99.9 % of the transition-ids of align_fmllr.sh."""
    kaldi = shared / "kaldi_an4"
    ali = kaldi / "exp/tri3b_ali"
    data = DataDir.read(kaldi / "data/train", audio=False)
    names = sorted(data.utterances)[::6]
    some = DataDir(
        data.path,
        {name: data.utterances[name] for name in names},
        data.recordings,
        data.gender,
    )
    lang, trained = Lang(kaldi / "lang"), model.read(ali / "final.mdl")
    matrix = read_matrix(ali / "final.mat").astype(np.float32)
    with Workspace(tmp_path) as space:
        fill(space, some, kaldi / "data/train", Frontend(left=0, right=0))
        words = list(word_ids(some, space.names, lang))
        passes = Passes(space, Pipeline(3, matrix, dict(read_transforms(ali))), 1)
        compile_graphs(passes, words, lang, event_map.read(ali / "tree"), trained.transitions)
        outcome = passes.align(
            trained, Search(beam=10, retry_beam=40, boost=1.0, quiet=lang.optional_silence)
        )
        assert not outcome.failed
        theirs = {
            name: ids for part in (1, 2) for name, ids in iterate(ali / f"ali.{part}.gz", "ints")
        }
        same = total = 0
        for name, ids in space.aligned():
            same += int((ids == theirs[name]).sum())
            total += len(ids)
    assert total == sum(len(theirs[name]) for name in names)
    assert same / total > 0.997
