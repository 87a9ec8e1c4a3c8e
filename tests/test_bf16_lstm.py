"""Our bf16 LSTM layers: nn.LSTM's values in fp32, and bf16's rounding where it is wanted."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from hadpsgd.models import bf16_lstm
from hadpsgd.models.blstm import BLSTM
from hadpsgd.models.loss import IGNORE

HALF_STEP = 2**-9
"""Rounding to bf16 moves a value by so much of it at most."""


def layers(dim: int, cells: int, count: int, kind: torch.dtype = torch.float32) -> nn.LSTM:
    torch.manual_seed(dim + 10 * cells + 100 * count)
    lstm = nn.LSTM(dim, cells, count, batch_first=True, bidirectional=True)
    with torch.no_grad():
        for parameter in lstm.parameters():
            parameter.mul_(2)  # gates far enough from the middle for tanh and sigmoid to matter
    return lstm.to(kind)


def packed(lstm: nn.LSTM, x: Tensor, lengths: Tensor | None) -> Tensor:
    """nn.LSTM as PyTorch's manual has it."""
    if lengths is None:
        return lstm(x)[0]
    sequence = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    return nn.utils.rnn.pad_packed_sequence(
        lstm(sequence)[0], batch_first=True, total_length=x.shape[1]
    )[0]


@settings(max_examples=25, deadline=None)
@given(
    count=st.integers(1, 3),
    dim=st.integers(1, 9),
    cells=st.integers(1, 9),
    batch=st.integers(1, 5),
    steps=st.integers(1, 7),
    data=st.data(),
)
def test_in_single_precision_it_is_pytorchs(
    count: int, dim: int, cells: int, batch: int, steps: int, data: st.DataObject
) -> None:
    """Outputs and all gradients, with and without lengths."""
    lengths = None
    if data.draw(st.booleans()):
        lengths = torch.tensor(
            data.draw(st.lists(st.integers(1, steps), min_size=batch, max_size=batch))
        )
    lstm = layers(dim, cells, count)
    x = torch.randn(batch, steps, dim, requires_grad=True)
    wanted = packed(lstm, x, lengths)
    found = bf16_lstm.blstm(lstm, x, lengths, kind=torch.float32)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    weights = torch.randn_like(wanted)
    leaves = [x, *lstm.parameters()]
    theirs = torch.autograd.grad((wanted * weights).sum(), leaves)
    ours = torch.autograd.grad((found * weights).sum(), leaves)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)


def test_in_double_precision_it_is_pytorchs() -> None:
    lstm = layers(5, 8, 2, torch.float64)
    x = torch.randn(3, 6, 5, dtype=torch.float64, requires_grad=True)
    wanted, found = lstm(x)[0], bf16_lstm.blstm(lstm, x, kind=torch.float64)
    weights = torch.randn_like(wanted)
    leaves = [x, *lstm.parameters()]
    pairs = zip(
        (found, *torch.autograd.grad((found * weights).sum(), leaves)),
        (wanted, *torch.autograd.grad((wanted * weights).sum(), leaves)),
        strict=True,
    )
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def rounded(values: np.ndarray) -> np.ndarray:
    """To the nearest bf16, ties to even: the upper half of a float32's bits."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    bits += 0x7FFF + ((bits >> 16) & 1)
    return (bits.astype(np.uint32) & 0xFFFF0000).view(np.float32).astype(np.float64)


def by_hand(lstm: nn.LSTM, x: np.ndarray) -> np.ndarray:
    """One layer over x [frames, dim], frame by frame in NumPy: bf16 operands, exact sums."""
    halves = []
    for suffix in ("", "_reverse"):
        w_ih, w_hh, b_ih, b_hh = (
            getattr(lstm, f"{name}_l0{suffix}").detach().double().numpy()
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        frames = x[::-1] if suffix else x
        h = c = np.zeros(lstm.hidden_size)
        out: list[np.ndarray] = []
        for frame in frames:
            product = rounded(rounded(w_ih) @ rounded(frame))
            if out:
                product = rounded(product + rounded(w_hh) @ h)
            i, f, g, o = np.split(product + b_ih + b_hh, 4)
            i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
            c = f * c + i * np.tanh(g)
            h = rounded(o * np.tanh(c))
            out.append(h)
        halves.append(np.array(out[::-1] if suffix else out))
    return np.concatenate(halves, -1)


def test_bf16_rounds_operands_and_results_of_products_and_nothing_else() -> None:
    """As NumPy does it; a sum in another order may round one product the other way."""
    lstm = layers(40, 32, 1)
    x = torch.randn(4, 21, 40)
    found = bf16_lstm.blstm(lstm, x)
    assert found.dtype == torch.bfloat16
    wanted = np.stack([by_hand(lstm, row) for row in x.double().numpy()])
    errors = np.abs(found.double().detach().numpy() - wanted)
    exact = np.abs(lstm(x)[0].double().detach().numpy() - wanted)
    assert errors.max() < 4 * HALF_STEP
    assert errors.mean() < 0.1 * exact.mean()  # most values have the very bits


@pytest.mark.parametrize("lengths", [None, [21, 3, 9, 14]])
def test_gradients_in_bf16_are_those_in_double_precision_up_to_its_rounding(
    lengths: list[int] | None,
) -> None:
    lstm = layers(24, 32, 2)
    x = torch.randn(4, 21, 24, requires_grad=True)
    frames = None if lengths is None else torch.tensor(lengths)
    weights = torch.randn(4, 21, 64)
    leaves = [x, *lstm.parameters()]
    found = torch.autograd.grad((bf16_lstm.blstm(lstm, x, frames) * weights).sum(), leaves)
    assert {gradient.dtype for gradient in found} == {torch.float32}
    exact = layers(24, 32, 2, torch.float64)
    doubled = x.detach().double().requires_grad_()
    loss = (packed(exact, doubled, frames) * weights).sum()
    wanted = torch.autograd.grad(loss, [doubled, *exact.parameters()])
    for ours, theirs in zip(found, wanted, strict=True):
        error = float((ours - theirs).norm() / theirs.norm())
        assert error < 8 * HALF_STEP


def test_the_same_bits_again() -> None:
    lstm = layers(24, 32, 2)
    x = torch.randn(4, 9, 24)
    made = []
    for _ in range(2):
        out = bf16_lstm.blstm(lstm, x)
        gradients = torch.autograd.grad(out.float().square().sum(), list(lstm.parameters()))
        made.append((out, *gradients))
    assert all(torch.equal(one, other) for one, other in zip(*made, strict=True))


def test_dropout_lies_between_the_layers() -> None:
    lstm, x = layers(6, 8, 2), torch.randn(3, 5, 6)
    lstm.dropout = 0.5
    one, two = (nn.LSTM(n, 8, batch_first=True, bidirectional=True) for n in (6, 16))
    for number, layer in enumerate((one, two)):
        values = {
            name.replace(f"_l{number}", "_l0"): value
            for name, value in lstm.state_dict().items()
            if f"_l{number}" in name
        }
        layer.load_state_dict(values)
    torch.manual_seed(4)
    found = bf16_lstm.blstm(lstm, x, kind=torch.float32)
    torch.manual_seed(4)
    between = F.dropout(bf16_lstm.blstm(one, x, kind=torch.float32).transpose(0, 1), 0.5)
    wanted = bf16_lstm.blstm(two, between.transpose(0, 1), kind=torch.float32)
    assert (between == 0).float().mean() > 0.2
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(
        bf16_lstm.blstm(lstm.eval(), x, kind=torch.float32), lstm(x)[0], rtol=0, atol=1e-6
    )


def test_a_second_backward_is_refused() -> None:
    """What the first one needed is overwritten by it."""
    lstm = layers(4, 4, 1)
    loss = bf16_lstm.blstm(lstm, torch.randn(2, 3, 4)).float().sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def model(*, own: bool) -> BLSTM:
    shape = SimpleNamespace(layers=2, cells=16, projection=8, dropout=0.0, frames_per_step=1)
    made = BLSTM(shape, input_dim=6, num_pdfs=5)
    made.own_layers = own
    return made


def test_a_model_uses_it_under_autocast_alone() -> None:
    """Held-out scores and decoding are in single precision, whatever training computed by."""
    ours, theirs = model(own=True), model(own=False)
    x, lengths = torch.randn(3, 7, 6), torch.tensor([7, 2, 4])
    assert torch.equal(ours(x), theirs(x)) and torch.equal(ours(x, lengths), theirs(x, lengths))
    for frames in (None, lengths):
        with torch.autocast("cpu", torch.bfloat16):
            found = ours.hidden(x, frames)
            states = ours.projection(bf16_lstm.blstm(ours.lstm, x, frames))
        assert torch.equal(found, states)
        torch.testing.assert_close(found.float(), theirs.hidden(x, frames), rtol=0.02, atol=0.02)


def test_weights_go_both_ways() -> None:
    ours, theirs = model(own=True), model(own=False)
    assert {n: v.shape for n, v in ours.state_dict().items()} == {
        n: v.shape for n, v in theirs.state_dict().items()
    }
    targets = torch.randint(5, (3, 7))
    targets[0, 3:] = IGNORE
    x = torch.randn(3, 7, 6)
    optimiser = torch.optim.SGD(ours.parameters(), lr=0.5)
    for _ in range(30):
        optimiser.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = ours.loss(x, targets)
        loss.backward()
        optimiser.step()
    before = theirs.score(x, targets)
    theirs.load_state_dict(ours.state_dict())
    assert theirs.score(x, targets) == ours.score(x, targets)
    assert theirs.score(x, targets).loss < 0.8 * before.loss
