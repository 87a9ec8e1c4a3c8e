"""Cross-entropy: chunked and fused against the plain one."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hadpsgd.models import loss
from hadpsgd.models.loss import (
    IGNORE,
    cross_entropy,
    linear_cross_entropy,
    score_frames,
)


def draw(frames: int, dim: int, pdfs: int, seed: int = 0, dtype: torch.dtype = torch.float64):  # type: ignore[no-untyped-def]
    generator = torch.Generator().manual_seed(seed)
    hidden, weight, bias = (
        torch.randn(*size, generator=generator, dtype=dtype).requires_grad_()
        for size in ((frames, dim), (pdfs, dim), (pdfs,))
    )
    return hidden, weight, bias, torch.randint(pdfs, (frames,), generator=generator)


def test_uniform_posterior_costs_ln_of_outputs() -> None:
    found = cross_entropy(torch.zeros(3, 2, 32_000), torch.randint(32_000, (3, 2)))
    assert float(found) == pytest.approx(math.log(32_000))


def test_ignored_frames_do_not_count() -> None:
    logits, targets = torch.randn(2, 4, 7), torch.randint(7, (2, 4))
    masked = targets.clone()
    masked[0, 2:] = IGNORE
    kept = masked != IGNORE
    expected = F.cross_entropy(logits[kept], targets[kept])
    torch.testing.assert_close(cross_entropy(logits, masked), expected)


@settings(max_examples=40)
@given(
    frames=st.integers(1, 12),
    pdfs=st.integers(2, 9),
    chunk=st.integers(1, 14),
    ignored=st.integers(0, 12),
    seed=st.integers(0, 99),
)
def test_fused_equals_plain(frames: int, pdfs: int, chunk: int, ignored: int, seed: int) -> None:
    hidden, weight, bias, targets = draw(frames, 3, pdfs, seed)
    targets[:ignored] = IGNORE
    leaves = (hidden, weight, bias)
    plain = cross_entropy(F.linear(*leaves), targets)
    fused = linear_cross_entropy(*leaves, targets, chunk=chunk)
    torch.testing.assert_close(fused, plain, rtol=1e-12, atol=1e-12)
    expected = torch.autograd.grad(3.0 * plain, leaves)
    for got, want in zip(torch.autograd.grad(3.0 * fused, leaves), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def test_fused_float32_is_within_1e_6() -> None:
    hidden, weight, bias, targets = draw(200, 32, 3000, dtype=torch.float32)
    leaves = (hidden, weight, bias)
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    want = torch.autograd.grad(cross_entropy(F.linear(*exact), targets), exact)
    got = torch.autograd.grad(linear_cross_entropy(*leaves, targets, chunk=64), leaves)
    for ours, reference in zip(got, want, strict=True):
        assert (ours - reference).norm() <= 1e-6 * reference.norm()


def test_gradcheck_of_fused() -> None:
    hidden, weight, bias, targets = draw(5, 3, 6)
    targets[1] = IGNORE

    def of(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return linear_cross_entropy(hidden, weight, bias, targets, chunk=2)

    assert torch.autograd.gradcheck(of, (hidden, weight, bias))


def test_all_frames_ignored_gives_zero() -> None:
    hidden, weight, bias, targets = draw(5, 3, 6)
    found = linear_cross_entropy(hidden, weight, bias, targets.fill_(IGNORE), chunk=2)
    found.backward()
    assert float(found.detach()) == 0 and hidden.grad is not None and not hidden.grad.any()


def test_fused_under_autocast_is_near() -> None:
    hidden, weight, bias, targets = draw(64, 16, 50, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fused = linear_cross_entropy(hidden, weight, bias, targets, chunk=10)
    assert fused.dtype == torch.float32
    (got,) = torch.autograd.grad(fused, weight)
    (want,) = torch.autograd.grad(cross_entropy(F.linear(hidden, weight, bias), targets), weight)
    assert got.dtype == torch.float32
    assert (got - want).norm() < 1e-2 * want.norm()


@settings(max_examples=30)
@given(
    frames=st.integers(1, 40),
    pdfs=st.integers(2, 60),
    block=st.integers(1, 300),
    ignored=st.integers(0, 40),
    seed=st.integers(0, 99),
)
def test_bf16_on_a_processor_is_exact_but_for_the_rounding_of_logits_and_their_gradient(
    frames: int, pdfs: int, block: int, ignored: int, seed: int
) -> None:
    """Hidden values, weights and biases here are numbers of bf16; so are logits, by rounding."""
    hidden, weight, bias, targets = draw(frames, 3, pdfs, seed, torch.float32)
    targets[:ignored] = IGNORE
    leaves = [leaf.detach().bfloat16().float().requires_grad_() for leaf in (hidden, weight, bias)]
    exact = [leaf.detach().double() for leaf in leaves]
    logits = F.linear(*exact).float().bfloat16().double().requires_grad_()
    want = cross_entropy(logits, targets)
    (of_logits,) = torch.autograd.grad(want, logits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss, "BLOCK_VALUES", block)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = linear_cross_entropy(leaves[0], leaves[1], leaves[2], targets)
    torch.testing.assert_close(found.double(), want.detach(), rtol=1e-5, atol=1e-6)
    got = torch.autograd.grad(found, leaves)
    wanted = of_logits @ exact[1], of_logits.T @ exact[0], of_logits.sum(0)
    for ours, reference, other in zip(got[:2], wanted[:2], exact[1::-1], strict=True):
        # the gradient's rounding and the product's, each half a step of bf16
        bound = 2**-8 * (of_logits.norm() * other.norm() + reference.norm())
        assert (ours - reference).norm() <= 1.01 * bound
    assert (got[2] - wanted[2]).norm() <= 1e-5  # summed before rounding


def test_a_posterior_that_underflows_has_a_finite_loss_in_bf16() -> None:
    hidden, targets = torch.ones(1, 1), torch.tensor([1])
    weight, bias = torch.tensor([[512.0], [0.0]], requires_grad=True), torch.zeros(2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = linear_cross_entropy(hidden, weight, bias, targets)
    assert float(found.detach()) == 512
    assert torch.autograd.grad(found, weight)[0].tolist() == [[1.0], [-1.0]]


def test_scores_add_up_over_batches() -> None:
    hidden, weight, bias, targets = draw(20, 3, 6)
    targets[7] = IGNORE
    whole = score_frames(hidden, weight, bias, targets)
    parts = [score_frames(hidden[p], weight, bias, targets[p]) for p in (slice(9), slice(9, 20))]
    logits = F.linear(hidden, weight, bias).detach()
    assert whole.frames == 19 == sum(p.frames for p in parts)
    assert whole.correct == sum(p.correct for p in parts)
    assert sum(p.loss for p in parts) == pytest.approx(whole.loss)
    assert whole.loss / whole.frames == pytest.approx(float(cross_entropy(logits, targets)))
    assert whole.correct == int((logits.argmax(-1) == targets).sum())  # no logit is IGNORE's
