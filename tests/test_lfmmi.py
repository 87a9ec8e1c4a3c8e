"""Lattice-free MMI: denominator, numerator and loss beside sums over all paths."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hadpsgd.config.settings import Model
from hadpsgd.config.stage import Stage
from hadpsgd.corpus.lang.topology import State, bakis, make_topology
from hadpsgd.errors import UserError
from hadpsgd.gmm import transition_model
from hadpsgd.gmm.event_map import PDF_CLASS, Leaf, Node, Split, Table, Tree
from hadpsgd.gmm.transition_model import TransitionModel
from hadpsgd.graph import denominator as den
from hadpsgd.graph.denominator import Denominator
from hadpsgd.models.blstm import BLSTM
from hadpsgd.models.denominator import LEAK, DenominatorSum
from hadpsgd.models.lfmmi import SequenceLoss
from hadpsgd.models.loss import IGNORE, cross_entropy
from hadpsgd.models.numerator import numerator_sum

HERE = Path("somewhere")
SAID = [[1, 2, 1, 3], [2, 2], [3, 1, 2], [1]]
"""Phones of four utterances."""


def tree(width: int) -> Tree:
    """Phone 1 of two states asks for its left neighbour, phone 2 for its right one; 3 has one."""
    centre = 0 if width == 1 else 1

    def states(first: int) -> Table:
        return Table(PDF_CLASS, (Leaf(first), Leaf(first + 1)))

    phones: tuple[Node | None, ...]
    if width == 1:
        phones = (None, states(0), states(4), Table(PDF_CLASS, (Leaf(8),)))
    else:
        left = Split(0, (0, 2), states(0), states(2))
        right = Split(2, (1, 3), states(4), states(6))
        phones = (None, left, right, Table(PDF_CLASS, (Leaf(8),)))
    return Tree(width=width, position=centre, root=Table(centre, phones))


def model(width: int) -> TransitionModel:
    """Of that tree; phone 3 may go back to its begin or skip on, to be no plain chain."""
    skipping = (
        State(forward_pdf_class=0, self_loop_pdf_class=0, transitions=((0, 0.3), (1, 0.7))),
        State(forward_pdf_class=-1, self_loop_pdf_class=-1),
    )
    topology = make_topology([([1, 2], bakis(2)), ([3], skipping)])
    made = transition_model.make(tree(width), topology)
    rng = np.random.default_rng(1)
    shares = rng.uniform(0.2, 1.0, made.num_ids + 1)
    total = np.bincount(made.state_of_id[1:], shares[1:])
    shares[1:] /= total[made.state_of_id[1:]]
    return made.with_log_probs(np.log(shares))


def likelihood(hmm: Denominator, scores: np.ndarray, *, initial: np.ndarray) -> float:
    """Of [frames, pdf-ids], by a dense matrix, without leaking."""
    matrix = np.zeros((len(hmm.pdf),) * 2)
    np.add.at(matrix, (hmm.source, hmm.target), hmm.probability)
    now = initial * np.exp(scores[0])[hmm.pdf]
    for frame in scores[1:]:
        now = (now @ matrix) * np.exp(frame)[hmm.pdf]
    return float(now.sum())


def expanded(width: int, frames: int) -> dict[tuple[int, ...], float]:
    """Probability of every sequence of pdf-ids of that length, from the begin of an utterance.

    Written without nodes or merging: phones are drawn one after the other from shares of bigrams
    (none was seen often enough for trigrams), each goes through its HMM by itself.
    """
    trained, tied = model(width), tree(width)
    pairs = Counter(pair for said in SAID for pair in itertools.pairwise([0, *said, 0]))
    total = Counter(first for first, _ in pairs.elements())
    after: defaultdict[int, dict[int, float]] = defaultdict(dict)
    for (first, second), seen in pairs.items():
        after[first][second] = seen / total[first]
    rows = {tuple(row): i for i, row in enumerate(trained.tuples.tolist())}
    found: defaultdict[tuple[int, ...], float] = defaultdict(float)

    def go(path: tuple[int, ...], p: float, before: int, phone: int, then: int, state: int) -> None:
        window = (phone,) if width == 1 else (before, phone, then)
        pdf = tied.pdf(window, state)
        assert pdf is not None
        path = (*path, pdf)
        if len(path) == frames:
            found[path] += p
            return
        first = trained.first_id[rows[phone, state, pdf, pdf]]
        arcs = trained.topology.states(phone)[state].transitions
        for number, (target, _) in enumerate(arcs):
            share = p * math.exp(trained.log_probs[first + number])
            if target < len(trained.topology.states(phone)) - 1:
                go(path, share, before, phone, then, target)
            elif then:
                for following, q in after[then].items():
                    go(path, share * q, phone, then, following, 0)
            else:
                for new, q in after[0].items():
                    for following, r in after[new].items():
                        go(path, share * q * r, 0, new, following, 0)

    for new, q in after[0].items():
        for following, r in after[new].items():
            go((), q * r, 0, new, following, 0)
    return found


@pytest.mark.parametrize("width", [1, 3])
def test_a_denominator_has_the_paths_of_its_phones(width: int) -> None:
    hmm = den.make(SAID, model(width), tree(width), where=HERE)
    assert np.allclose(np.bincount(hmm.source, hmm.probability), 1)
    assert np.isclose(hmm.initial.sum(), 1)
    wanted = expanded(width, frames=5)
    assert np.isclose(sum(wanted.values()), 1)
    # where utterances begin: those of the first frame's shares that no path comes to later
    begin = np.zeros(len(hmm.pdf))
    network = den._Network(
        den._Language.of(SAID, HERE),
        den._Hmms(model(width), tree(width), HERE),
    )
    for node, share in network.entries.items():
        begin[network.base[node]] += share
    impossible = -1e9
    for path, p in list(wanted.items())[::3]:
        scores = np.full((5, 9), impossible)
        scores[np.arange(5), path] = 0.0
        assert np.isclose(likelihood(hmm, scores, initial=begin), p, rtol=1e-5)


def test_three_phones_in_a_row_count_once_they_are_seen_often() -> None:
    often = [[1, 2, 3]] * den.SEEN + [[2, 2]]
    language = den._Language.of(often, HERE)
    assert language.after(2, before=1) == {3: 1.0}
    assert language.after(2, before=2) == {0: 1 / 22, 2: 1 / 22, 3: 20 / 22}


def dense(hmm: Denominator, scores: Tensor) -> Tensor:
    """Log-likelihood of [frames, pdf-ids] with leaking, by a dense matrix; differentiable."""
    states = len(hmm.pdf)
    matrix = torch.zeros((states, states), dtype=torch.float64)
    arcs = torch.from_numpy(hmm.source).long(), torch.from_numpy(hmm.target).long()
    matrix.index_put_(arcs, torch.from_numpy(hmm.probability).double(), accumulate=True)
    initial = torch.from_numpy(hmm.initial).double()
    leaking = (torch.eye(states, dtype=torch.float64) + LEAK * initial) @ matrix
    pdf = torch.from_numpy(hmm.pdf).long()
    now = initial.log() + scores[0][pdf]
    for frame in scores[1:]:
        now = (now[:, None] + leaking.log()).logsumexp(0) + frame[pdf]
    return now.logsumexp(0)


def test_the_sum_over_all_paths_and_its_gradient_equal_the_dense_ones() -> None:
    hmm = den.make(SAID, model(3), tree(3), where=HERE)
    lengths = [7, 1, 0, 5]
    torch.manual_seed(1)
    scores = 3 * torch.randn(4, 7, 9, dtype=torch.float64)
    for kind, close in ((torch.float64, 1e-9), (torch.float32, 1e-5)):
        paths = DenominatorSum(hmm, device=torch.device("cpu"), dtype=kind)
        found = paths(scores.to(kind), torch.tensor(lengths))
        for example, length in enumerate(lengths):
            own = scores[example, :length].requires_grad_()
            total = dense(hmm, own) if length else torch.zeros((), dtype=torch.float64)
            assert found.log_likelihood[example].double() == pytest.approx(total.item(), abs=close)
            shares = found.shares[example].double()
            if length:
                (wanted,) = torch.autograd.grad(total, own)
                assert torch.allclose(shares[:length], wanted, atol=close)
            assert not shares[length:].any()


def test_scores_far_apart_stay_finite() -> None:
    hmm = den.make(SAID, model(3), tree(3), where=HERE)
    paths = DenominatorSum(hmm, device=torch.device("cpu"), dtype=torch.float32)
    scores = torch.full((1, 60, 9), -80.0)
    scores[0, :, 0] = 80.0  # the second state of phone 1 has to come, and is not liked
    found = paths(scores, torch.tensor([60]))
    assert found.log_likelihood.isfinite().all()
    assert torch.allclose(found.shares.sum(-1), torch.ones(1, 60), atol=1e-4)


def borders(labels: list[int], tolerance: int) -> list[list[int]]:
    """All ways to go through the runs of the labels."""
    runs = [(k, len(list(g))) for k, g in itertools.groupby(labels)]
    ends = list(itertools.accumulate(n for _, n in runs))
    spans = [(end - n - tolerance, end + tolerance) for (_, n), end in zip(runs, ends, strict=True)]
    found = []
    for path in itertools.product(range(len(runs)), repeat=len(labels)):
        steps = [b - a for a, b in itertools.pairwise(path)]
        inside = all(spans[k][0] <= t < spans[k][1] for t, k in enumerate(path))
        if inside and all(step in (0, 1) for step in steps):
            found.append([runs[k][0] for k in path])
    return found


@settings(deadline=None, max_examples=30)
@given(
    labels=st.lists(
        st.lists(st.sampled_from([0, 1, 2]), min_size=1, max_size=5), min_size=1, max_size=3
    ),
    tolerance=st.integers(0, 2),
)
def test_what_was_said_is_the_sum_over_its_borders(labels: list[list[int]], tolerance: int) -> None:
    frames = max(map(len, labels))
    torch.manual_seed(1)
    scores = 2 * torch.randn(len(labels), frames, 3, dtype=torch.float64)
    padded = torch.tensor([[*row, *[IGNORE] * (frames - len(row))] for row in labels])
    lengths = torch.tensor([len(row) for row in labels])
    found = numerator_sum(scores, padded, lengths, tolerance=tolerance)
    for example, row in enumerate(labels):
        own = scores[example].clone().requires_grad_()
        paths = torch.tensor(borders(row, tolerance))
        total = own[torch.arange(len(row)), paths].sum(1).logsumexp(0)
        (wanted,) = torch.autograd.grad(total, own)
        assert float(found.log_likelihood[example]) == pytest.approx(total.item(), abs=1e-9)
        assert torch.allclose(found.shares[example], wanted, atol=1e-9)


def network(stage: Stage, dtype: torch.dtype = torch.float64) -> SequenceLoss:
    shape = Model(layers=1, cells=4, projection=3)
    hmm = den.make(SAID, model(3), tree(3), where=HERE)
    priors = torch.linspace(-3, -1, 9)
    blstm = BLSTM(shape, input_dim=2, num_pdfs=9, seed=1).to(dtype)
    return SequenceLoss(blstm, hmm, priors, stage)


LENGTHS = torch.tensor([6, 4])
"""Frames of the minibatch's examples."""


def minibatch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(2)
    targets = torch.tensor([[0, 0, 1, 4, 4, 5], [8, 8, 2, 3, IGNORE, IGNORE]])
    return torch.randn(2, 6, 2, dtype=torch.float64), targets


@pytest.mark.parametrize("scale", [0.2, 1.0])
def test_the_gradient_is_that_of_small_differences(scale: float) -> None:
    loss = network(Stage(acoustic_scale=scale, tolerance=1))
    x, targets = minibatch()
    weight = loss.model.output.weight
    loss(x, targets).backward()
    assert weight.grad is not None
    for place in ((0, 0), (4, 1), (8, 2)):
        ends = []
        for small in (1e-5, -1e-5):
            with torch.no_grad():
                weight[place] += small
                ends.append(float(loss(x, targets)))
                weight[place] -= small
        assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(float(weight.grad[place]), rel=1e-5)


def test_the_loss_is_that_of_the_equation() -> None:
    """Denominator minus numerator over frames and scale, of logits less the given priors."""
    scale = 0.3
    loss = network(Stage(acoustic_scale=scale, cross_entropy=0.0))
    x, targets = minibatch()
    hmm = den.make(SAID, model(3), tree(3), where=HERE)
    total = torch.zeros((), dtype=torch.float64)
    for example, length in enumerate((6, 4)):
        logits = loss.model(x[example : example + 1, :length])[0]
        scores = scale * (logits - torch.linspace(-3, -1, 9))
        said = scores[torch.arange(length), targets[example, :length]].sum()
        total = total + dense(hmm, scores) - said
    assert loss(x, targets).item() == pytest.approx(total.item() / (scale * 10), rel=1e-6)


def test_a_score_is_the_loss_and_padding_does_not_count() -> None:
    loss = network(Stage(cross_entropy=0.2))
    x, targets = minibatch()
    score = loss.score(x, targets)
    assert score.frames == 10
    assert score.loss / 10 == pytest.approx(loss(x, targets).item())
    alone = network(Stage(cross_entropy=0.0))
    ce = cross_entropy(alone.model(x, LENGTHS), targets)
    assert loss(x, targets).item() == pytest.approx((alone(x, targets) + 0.2 * ce).item())
    logits = loss.model(x)
    other = logits.clone()
    other[1, 4:] += 5.0
    assert torch.equal(loss.mmi(logits, targets)[0], loss.mmi(other, targets)[0])
    x[1, 4:] = 9.0  # the backward direction began there
    assert loss.score(x, targets) == score


def test_the_network_sees_no_padding() -> None:
    """An example's end is the utterance's, as in decoding: losses and gradients of a minibatch are
    those of its examples alone, weighted by their frames."""
    stage = Stage(cross_entropy=0.3)
    together, alone = network(stage), network(stage)
    x, targets = minibatch()
    loss = together(x, targets)
    loss.backward()
    parts = [alone(x[i : i + 1, :n], targets[i : i + 1, :n]) * n for i, n in enumerate(LENGTHS)]
    mean = torch.stack(parts).sum() / LENGTHS.sum()
    mean.backward()
    assert float(loss.detach()) == pytest.approx(float(mean.detach()), rel=1e-7)
    for one, other in zip(together.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-8)


def test_a_share_without_examples_has_no_gradient() -> None:
    """Where a minibatch has fewer examples than there are learners."""
    loss = network(Stage())
    x, targets = minibatch()
    value = loss(x[:0], targets[:0])
    value.backward()
    assert float(value.detach()) == 0.0
    assert all(p.grad is not None and not p.grad.any() for p in loss.model.parameters())
    assert loss.score(x[:0], targets[:0]).frames == 0


def test_under_bf16_only_the_network_is_in_bf16() -> None:
    """`precision: bf16` of a stage ended in an error of PyTorch: no sparse products in bf16."""
    criterion = network(Stage(cross_entropy=0.1), torch.float32)
    x, targets = minibatch()
    x = x.float()
    with torch.autocast("cpu", torch.bfloat16):
        logits = criterion.model(x, LENGTHS).float()
        loss = criterion(x, targets)
        score = criterion.score(x, targets)
    loss.backward()
    expected, _ = criterion.mmi(logits.detach(), targets)
    expected = expected + 0.1 * cross_entropy(logits.detach(), targets)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.detach(), expected)
    torch.testing.assert_close(torch.tensor(score.loss / score.frames), expected)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in criterion.parameters())


def test_nothing_of_the_criterion_is_a_weight() -> None:
    loss = network(Stage())
    assert {name for name, _ in loss.named_parameters()} == {
        f"model.{name}" for name, _ in loss.model.named_parameters()
    }
    assert not list(loss.buffers())


def test_a_denominator_is_read_as_written(tmp_path: Path) -> None:
    hmm = den.make(SAID, model(3), tree(3), where=HERE)
    hmm.write(tmp_path / den.FILE)
    again = Denominator.read(tmp_path / den.FILE)
    for name in ("pdf", "source", "target", "probability", "initial"):
        assert np.array_equal(getattr(hmm, name), getattr(again, name))
    whole = (tmp_path / den.FILE).read_bytes()
    for cut in (0, 100, len(whole) - 30):
        (tmp_path / den.FILE).write_bytes(whole[:cut])
        with pytest.raises(UserError, match="damaged"):
            Denominator.read(tmp_path / den.FILE)
    none, far = np.zeros(0, np.int32), hmm.target + len(hmm.pdf)
    for broken in (
        Denominator(none, none, none, none.astype(np.float32), none.astype(np.float32)),
        replace(hmm, target=far),
        replace(hmm, source=-1 - hmm.source),
        replace(hmm, probability=hmm.probability * np.nan),
        replace(hmm, initial=hmm.initial[1:]),
    ):
        broken.write(tmp_path / den.FILE)
        with pytest.raises(UserError, match="damaged"):
            Denominator.read(tmp_path / den.FILE)
    with pytest.raises(UserError, match="missing"):
        Denominator.read(tmp_path / "none.npz")


def test_what_cannot_be_made_is_refused() -> None:
    with pytest.raises(UserError, match="no phones"):
        den.make([[]], model(3), tree(3), where=HERE)
    wide = Tree(width=2, position=1, root=tree(3).root)
    with pytest.raises(UserError, match="a tree of 2 phones"):
        den.make(SAID, model(3), wide, where=HERE)
    with pytest.raises(UserError, match="no pdf-ids for phone"):
        den.make(SAID, model(1), tree(3), where=HERE)
