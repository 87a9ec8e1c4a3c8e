"""A bidirectional LSTM for processors, equal to nn.LSTM, with its time in a few bf16 products.

A layer's input product covers all frames; a step is one batched recurrent product for both
directions and some passes over its gates; the backward pass ends in products over all frames for
the weights and for the layer below. Operands of products are rounded to bf16 and their terms added
in fp32; a product's result is rounded once. Activations, cells, their gradients and the weights
stay in fp32. A layer's weights are rounded once a step.

The parameters are those of an nn.LSTM: it loads what this trained, and the other way round.
PyTorch defines the arithmetic on every processor; fast it is where instructions for bf16 are.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
"""A direction's parameters in a layer of nn.LSTM."""
_sigmoid_gradient = torch.ops.aten.sigmoid_backward.grad_input
_tanh_gradient = torch.ops.aten.tanh_backward.grad_input


def blstm(
    lstm: nn.LSTM, x: Tensor, lengths: Tensor | None = None, kind: torch.dtype = torch.bfloat16
) -> Tensor:
    """What `lstm` gives for x [batch, frames, dim]: [batch, frames, 2 cells], of type `kind`.

    Args:
        lstm: bidirectional, batch first, with biases.
        x: padded where utterances end early.
        lengths: frames of each utterance, int64 [batch]; outputs behind the end are 0. None: all
            are as long as x.
        kind: what operands of products are rounded to; fp32 and fp64 leave the algorithm alone.
    """
    steps = x.shape[1]
    order = inside = None
    if lengths is not None:
        lengths = lengths.to(x.device)
        order = backwards(lengths, steps)
        inside = (torch.arange(steps, device=x.device)[:, None] < lengths)[:, :, None]
    with torch.autocast(x.device.type, enabled=False):
        states = x.transpose(0, 1).to(kind)
        for layer in range(lstm.num_layers):
            if layer and lstm.dropout:
                states = F.dropout(states, lstm.dropout, lstm.training)
            parameters = [
                getattr(lstm, f"{name}_l{layer}{direction}")
                for direction in ("", "_reverse")
                for name in NAMES
            ]
            states = _Layer.apply(states, order, *parameters)
            if inside is not None:
                states = states * inside
        return states.transpose(0, 1)


def backwards(lengths: Tensor, steps: int) -> Tensor:
    """Frame that the backward direction reads at each step, int64 [steps, batch].

    Every utterance begins at its own last frame; padding stays behind, where it is.
    """
    step = torch.arange(steps, device=lengths.device)[:, None]
    return torch.where(step < lengths, lengths - 1 - step, step)


class _Layer(torch.autograd.Function):
    """One bidirectional layer: x [frames, batch, dim] → [frames, batch, 2 cells], of x's type.

    Inside, the first axis of two is the direction, and time runs in the order of its steps.
    Gates are input, forget, candidate, output, as in nn.LSTM. Where tanh x is wanted,
    sigmoid(2x) = (1 + tanh x) / 2 is computed: PyTorch's tanh takes ten times as long on
    processors, and one pass does all four gates.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor | None, *parameters: Tensor) -> Tensor:
        sums = torch.promote_types(x.dtype, torch.float32)
        ahead, behind = parameters[:4], parameters[4:]
        w_ih, w_hh = (_pair(ahead[n], behind[n], x.dtype) for n in (0, 1))
        bias = _pair(ahead[2] + ahead[3], behind[2] + behind[3], sums)[:, None]
        for weight in (w_ih, w_hh, bias.transpose(1, 2)):
            _candidate(weight, 1).mul_(2)  # exact
        steps, batch, dim = x.shape
        count = w_hh.shape[2]
        inputs = _pair(x, _reverse(x, order), x.dtype)
        products = torch.bmm(inputs.view(2, steps * batch, dim), w_ih.transpose(1, 2))
        products = products.view(2, steps, batch, 4 * count)
        cells = x.new_empty((2, steps, batch, count), dtype=sums)
        states = x.new_empty((2, steps, batch, count))
        gates = x.new_empty((2, batch, 4 * count), dtype=sums)
        i, f, s, o = gates.chunk(4, -1)
        tanh = x.new_empty((2, batch, count), dtype=sums)
        before: tuple[Tensor, Tensor] | None = None
        for product, cell, state in zip(*_steps(products, cells, states), strict=True):
            if before:
                for d in range(2):  # as one, they would be copied to lie together
                    product[d].addmm_(before[0][d], w_hh[d].T)
            gates.copy_(product).add_(bias).sigmoid_()
            torch.add(_MINUS_2, s, alpha=4, out=cell).mul_(i)
            if before:
                cell.addcmul_(f, before[1])
            torch.sigmoid(cell, out=tanh).mul_(2).sub_(1)
            torch.mul(o, tanh, out=state)
            before = state, cell
        ctx.save_for_backward(inputs, w_ih, w_hh, bias, products, cells, states)
        ctx.order = order
        return torch.cat([states[0], _reverse(states[1], order)], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        inputs, w_ih, w_hh, bias, products, cells, states = ctx.saved_tensors
        _, steps, batch, dim = inputs.shape
        count = w_hh.shape[2]
        ahead, behind = grads[0].split(count, -1)
        d_states = _pair(ahead, _reverse(behind, ctx.order), cells.dtype)
        gates, d_gates, d_bias = (
            torch.zeros_like(products[:, 0], dtype=cells.dtype) for _ in range(3)
        )
        i, f, s, o = gates.chunk(4, -1)
        d_i, d_f, d_s, d_o = d_gates.chunk(4, -1)
        d_cell, first, tanh, scratch = (torch.zeros_like(cells[:, 0]) for _ in range(4))
        recurrent = torch.empty_like(states[:, 0])
        of_steps = [*zip(*_steps(products, cells, d_states), strict=True)]
        for step in reversed(range(steps)):
            product, cell, d_state = of_steps[step]
            if step + 1 < steps:
                for d in range(2):
                    torch.mm(of_steps[step + 1][0][d], w_hh[d], out=recurrent[d])
                d_state.add_(recurrent)
            gates.copy_(product).add_(bias).sigmoid_()
            torch.sigmoid(cell, out=tanh).mul_(2).sub_(1)
            torch.mul(d_state, o, out=scratch)
            d_cell.add_(_tanh_gradient(scratch, tanh, grad_input=scratch), alpha=0.5)
            torch.add(_MINUS_2, s, alpha=4, out=scratch)
            torch.mul(d_cell, scratch, out=d_i)
            torch.mul(d_cell, of_steps[step - 1][1] if step else first, out=d_f)
            torch.addcmul(_ZERO, d_cell, i, value=4, out=d_s)
            torch.mul(d_state, tanh, out=d_o)
            d_cell.mul_(f)
            d_bias.add_(_sigmoid_gradient(d_gates, gates, grad_input=d_gates))
            product.copy_(d_gates)  # in the place of what is not needed any more
        flat = products.view(2, steps * batch, 4 * count)
        d_x = None
        if ctx.needs_input_grad[0]:
            ahead, behind = torch.bmm(flat, w_ih).view(inputs.shape)
            d_x = ahead + _reverse(behind, ctx.order)
        d_w_ih = torch.bmm(flat.transpose(1, 2), inputs.view(2, -1, dim))
        found: list[Tensor] = []
        for d in range(2):
            d_w_hh = flat[d, batch:].T @ states[d, :-1].view(-1, count)
            weights = [g.to(cells.dtype) for g in (d_w_ih[d], d_w_hh)]
            biases = d_bias[d].sum(0)
            for g in (*weights, biases):
                _candidate(g, 0).mul_(2)
            found += [*weights, biases, biases]
        return d_x, None, *found


_MINUS_2 = torch.tensor(-2.0)
_ZERO = torch.tensor(0.0)


def _reverse(x: Tensor, order: Tensor | None) -> Tensor:
    """Frames [frames, batch, dim] as the backward direction meets them, and back again."""
    return x.flip(0) if order is None else x.gather(0, order[:, :, None].expand_as(x))


def _pair(ahead: Tensor, behind: Tensor, kind: torch.dtype) -> Tensor:
    """Both directions, [2, ...], rounded to a type."""
    both = ahead.new_empty((2, *ahead.shape), dtype=kind)
    both[0], both[1] = ahead, behind
    return both


def _candidate(x: Tensor, axis: int) -> Tensor:
    """The third quarter: rows of the candidate, in place of which its double is computed."""
    quarter = x.shape[axis] // 4
    return x.narrow(axis, 2 * quarter, quarter)


def _steps(*of_layer: Tensor) -> list[tuple[Tensor, ...]]:
    """Tensors [2, steps, ...], each as one [2, ...] a step."""
    return [values.unbind(1) for values in of_layer]
