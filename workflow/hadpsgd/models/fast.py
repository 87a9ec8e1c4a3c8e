"""A bidirectional LSTM for CUDA, equal to nn.LSTM, with its time in large matrix products.

All frames and both directions share one input product a layer. A step is one batched recurrent
product and one kernel for the gates. Activated gates (in the working type) and cells are kept for
the backward pass, which ends in three large products a layer. The parameters stay those of an
nn.LSTM. On the CPU the same code runs with PyTorch operations in the place of the kernels, which is
how the tests check it. How fast it is: docs/gpu.md.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from hadpsgd.models.backend import use_kernels, working_type

NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
"""A layer's parameters in nn.LSTM."""

FORWARD, BACKWARD = (16, 128), (32, 64)
"""Tiles of the gate kernels: batch rows, cells. The fastest of five on an H200."""


def blstm(lstm: nn.LSTM, x: Tensor) -> Tensor:
    """What `lstm(x)[0]` gives: x [batch, frames, dim] → [batch, frames, 2 cells].

    `lstm` is bidirectional and batch first. Works in the type of autocast, else that of x.
    """
    kind = working_type(x)
    states = x.transpose(0, 1).to(kind)
    for layer in range(lstm.num_layers):
        w_ih, w_hh, b_ih, b_hh = (
            _both(lstm, f"{name}_l{layer}")
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        weight = w_ih.flatten(0, 1).to(kind)
        if spare := -weight.shape[1] % 8:  # rows of 16 bytes, or the product is slow
            weight, states = F.pad(weight, (0, spare)), F.pad(states, (0, spare))
        bias = (b_ih + b_hh).flatten().to(kind)
        if layer and lstm.dropout:
            states = F.dropout(states, lstm.dropout, lstm.training)
        states = _Layer.apply(states.contiguous(), weight, w_hh.to(kind), bias)
    return states.transpose(0, 1)


def _both(lstm: nn.LSTM, name: str) -> Tensor:
    return torch.stack([getattr(lstm, name), getattr(lstm, f"{name}_reverse")])


class _Layer(torch.autograd.Function):
    """One bidirectional layer: x [frames, batch, dim] → [frames, batch, 2 cells]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor) -> Tensor:
        steps, batch, dim = x.shape
        cells_count = w_hh.shape[2]
        with torch.autocast(x.device.type, enabled=False):
            gates = torch.addmm(bias, x.view(-1, dim), w_ih.T)
            gates = gates.view(steps, batch, 2, 4, cells_count)
            cells = x.new_empty(
                (steps, batch, 2, cells_count), dtype=torch.promote_types(torch.float32, x.dtype)
            )
            out = x.new_empty(steps, batch, 2, cells_count)
            state = x.new_empty(2, batch, cells_count)
            recurrent = None
            for step in range(steps):
                if step:
                    recurrent = torch.bmm(state, w_hh.transpose(1, 2))
                _gates_forward(gates, recurrent, cells, out, state, step)
        ctx.save_for_backward(x, w_ih, w_hh, gates, cells, out)
        return out.view(steps, batch, 2 * cells_count)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, w_ih, w_hh, gates, cells, out = ctx.saved_tensors
        steps, batch, dim = x.shape
        cells_count = w_hh.shape[2]
        with torch.autocast(x.device.type, enabled=False):
            d_out = grads[0].contiguous().view_as(out)
            d_gates = torch.empty_like(gates)
            d_state = torch.empty_like(out[0]).view(2, batch, cells_count)
            carried = torch.promote_types(torch.float32, x.dtype)
            d_cell = torch.empty_like(d_state, dtype=carried)
            blocks = -(-batch // BACKWARD[0]) if use_kernels(x) else 1
            d_bias = x.new_zeros((blocks, 2, 4, cells_count), dtype=carried)
            for step in reversed(range(steps)):
                _gates_backward(gates, cells, d_out, d_state, d_cell, d_gates, d_bias, step)
                if step:
                    for d, time in enumerate((step, steps - 1 - step)):
                        part = d_gates[time, :, d].flatten(1)
                        torch.mm(part, w_hh[d], out=d_state[d])
            flat = d_gates.view(steps * batch, 8 * cells_count)
            d_x = (flat @ w_ih).view_as(x) if ctx.needs_input_grad[0] else None
            d_w_ih = flat.T @ x.view(-1, dim)
            by_direction = d_gates.view(steps * batch, 2, 4 * cells_count)
            states = out.view(steps * batch, 2, cells_count)
            d_w_hh = torch.stack(
                [
                    by_direction[batch:, 0].T @ states[:-batch, 0],
                    by_direction[:-batch, 1].T @ states[batch:, 1],
                ]
            )
        return d_x, d_w_ih, d_w_hh, d_bias.sum(0).flatten().to(x.dtype)


def _gates_forward(
    gates: Tensor, recurrent: Tensor | None, cells: Tensor, out: Tensor, state: Tensor, step: int
) -> None:
    """Gates of one step, in place; see kernels.gates_forward."""
    steps, batch, _, _, count = gates.shape
    if use_kernels(gates):
        from hadpsgd.models import kernels

        rows, cols = FORWARD
        grid = (-(-batch // rows), -(-count // cols), 2)
        kernels.gates_forward[grid](
            gates, gates if recurrent is None else recurrent, cells, out, state,
            step, steps, batch, H=count, FIRST=step == 0, ROWS=rows, COLS=cols, num_warps=8,
        )  # fmt: skip
        return
    for d, time, before in _directions(step, steps):
        values = gates[time, :, d]
        if recurrent is not None:
            values = values + recurrent[d].view(batch, 4, count)
        i, f, g, o = values.unbind(1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        c = i * g if step == 0 else i * g + f * cells[before, :, d]
        gates[time, :, d] = torch.stack([i, f, g, o], 1)
        cells[time, :, d] = c
        out[time, :, d] = state[d] = o * c.tanh().to(o.dtype)


def _gates_backward(
    gates: Tensor, cells: Tensor, d_out: Tensor, d_state: Tensor, d_cell: Tensor,
    d_gates: Tensor, d_bias: Tensor, step: int,
) -> None:  # fmt: skip
    """Gradient of the gates of one step; see kernels.gates_backward."""
    steps, batch, _, _, count = gates.shape
    first, last = step == 0, step == steps - 1
    if use_kernels(gates):
        from hadpsgd.models import kernels

        rows, cols = BACKWARD
        grid = (-(-batch // rows), -(-count // cols), 2)
        kernels.gates_backward[grid](
            gates, cells, d_out, d_state, d_cell, d_gates, d_bias, step, steps, batch,
            H=count, FIRST=first, LAST=last, ROWS=rows, COLS=cols, num_warps=8,
        )  # fmt: skip
        return
    for d, time, before in _directions(step, steps):
        i, f, g, o = gates[time, :, d].unbind(1)
        dh = d_out[time, :, d] if last else d_out[time, :, d] + d_state[d]
        c_previous = torch.zeros_like(d_cell[d]) if first else cells[before, :, d]
        t = (i * g + f * c_previous).tanh()
        dc = dh * o * (1 - t * t)
        if not last:
            dc = dc + d_cell[d]
        values = torch.stack(
            [dc * g * i * (1 - i), dc * c_previous * f * (1 - f), dc * i * (1 - g * g),
             dh * t * o * (1 - o)], 1,
        )  # fmt: skip
        d_cell[d] = dc * f
        d_gates[time, :, d] = values
        d_bias[0, d] += values.sum(0)


def _directions(step: int, steps: int) -> list[tuple[int, int, int]]:
    """(direction, its frame at this step, its frame a step before)."""
    return [(0, step, step - 1), (1, steps - 1 - step, steps - step)]
