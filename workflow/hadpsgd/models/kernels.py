# mypy: ignore-errors
# (Triton's language has no types)
"""Triton kernels of the fast path on CUDA: LSTM gates, and softmax with its gradient.

Importing needs Triton; `hadpsgd.models.fast` asks first. Directions are 0 (forward) and 1
(backward in time); direction 1 visits frame `steps - 1 - step` at a step. Sums run in a fixed
order, so that equal inputs give equal bits.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def _tanh(x):
    return 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0


@triton.jit(do_not_specialize=["step", "steps", "batch"])
def gates_forward(
    gates,  # [steps, batch, 2, 4, H]: pre-activations of the input; becomes i, f, g, o
    recurrent,  # [2, batch, 4, H]: state times recurrent weights (not read at step 0)
    cells,  # [steps, batch, 2, H]
    out,  # [steps, batch, 2, H]
    state,  # [2, batch, H]: the new state again, as the next product wants it
    step,
    steps,
    batch,
    H: tl.constexpr,
    FIRST: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """One step of both directions after the recurrent product."""
    d = tl.program_id(2)
    time = tl.where(d == 0, step, steps - 1 - step).to(tl.int64)
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    cols = (tl.program_id(1) * COLS + tl.arange(0, COLS))[None, :]
    mask = (rows < batch) & (cols < H)
    unit = ((time * batch + rows) * 2 + d) * H + cols
    gate = ((time * batch + rows) * 2 + d) * (4 * H) + cols
    i = tl.load(gates + gate, mask=mask, other=0.0).to(tl.float32)
    f = tl.load(gates + gate + H, mask=mask, other=0.0).to(tl.float32)
    g = tl.load(gates + gate + 2 * H, mask=mask, other=0.0).to(tl.float32)
    o = tl.load(gates + gate + 3 * H, mask=mask, other=0.0).to(tl.float32)
    if not FIRST:
        at = (d * batch + rows) * (4 * H) + cols
        i += tl.load(recurrent + at, mask=mask, other=0.0).to(tl.float32)
        f += tl.load(recurrent + at + H, mask=mask, other=0.0).to(tl.float32)
        g += tl.load(recurrent + at + 2 * H, mask=mask, other=0.0).to(tl.float32)
        o += tl.load(recurrent + at + 3 * H, mask=mask, other=0.0).to(tl.float32)
    i = _sigmoid(i)
    f = _sigmoid(f)
    g = _tanh(g)
    o = _sigmoid(o)
    c = i * g
    if not FIRST:
        before = tl.where(d == 0, time - 1, time + 1)
        previous = ((before * batch + rows) * 2 + d) * H + cols
        c += f * tl.load(cells + previous, mask=mask, other=0.0).to(tl.float32)
    h = o * _tanh(c)
    kind = gates.dtype.element_ty
    tl.store(gates + gate, i.to(kind), mask=mask)
    tl.store(gates + gate + H, f.to(kind), mask=mask)
    tl.store(gates + gate + 2 * H, g.to(kind), mask=mask)
    tl.store(gates + gate + 3 * H, o.to(kind), mask=mask)
    tl.store(cells + unit, c.to(cells.dtype.element_ty), mask=mask)
    tl.store(out + unit, h.to(out.dtype.element_ty), mask=mask)
    tl.store(state + (d * batch + rows) * H + cols, h.to(state.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["step", "steps", "batch"])
def gates_backward(
    gates,  # [steps, batch, 2, 4, H]: i, f, g, o
    cells,  # [steps, batch, 2, H]
    d_out,  # [steps, batch, 2, H]
    d_state,  # [2, batch, H]: from the step after (not read at the last step)
    d_cell,  # [2, batch, H], carried; float32
    d_gates,  # [steps, batch, 2, 4, H], written
    d_bias,  # [row blocks, 2, 4, H], carried sums; float32
    step,
    steps,
    batch,
    H: tl.constexpr,
    FIRST: tl.constexpr,
    LAST: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Gradient of one step of both directions before the recurrent product."""
    d = tl.program_id(2)
    time = tl.where(d == 0, step, steps - 1 - step).to(tl.int64)
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    col = tl.program_id(1) * COLS + tl.arange(0, COLS)
    cols = col[None, :]
    mask = (rows < batch) & (cols < H)
    unit = ((time * batch + rows) * 2 + d) * H + cols
    gate = ((time * batch + rows) * 2 + d) * (4 * H) + cols
    carried = (d * batch + rows) * H + cols
    i = tl.load(gates + gate, mask=mask, other=0.0).to(tl.float32)
    f = tl.load(gates + gate + H, mask=mask, other=0.0).to(tl.float32)
    g = tl.load(gates + gate + 2 * H, mask=mask, other=0.0).to(tl.float32)
    o = tl.load(gates + gate + 3 * H, mask=mask, other=0.0).to(tl.float32)
    dh = tl.load(d_out + unit, mask=mask, other=0.0).to(tl.float32)
    if not LAST:
        dh += tl.load(d_state + carried, mask=mask, other=0.0).to(tl.float32)
    # the cell is computed again: cheaper than reading it
    c = i * g
    c_previous = tl.zeros_like(c)
    if not FIRST:
        before = tl.where(d == 0, time - 1, time + 1)
        previous = ((before * batch + rows) * 2 + d) * H + cols
        c_previous = tl.load(cells + previous, mask=mask, other=0.0).to(tl.float32)
        c += f * c_previous
    t = _tanh(c)
    dc = dh * o * (1.0 - t * t)
    if not LAST:
        dc += tl.load(d_cell + carried, mask=mask, other=0.0)
    di = dc * g * i * (1.0 - i)
    df = dc * c_previous * f * (1.0 - f)
    dg = dc * i * (1.0 - g * g)
    do = dh * t * o * (1.0 - o)
    if not FIRST:
        tl.store(d_cell + carried, dc * f, mask=mask)
    kind = d_gates.dtype.element_ty
    tl.store(d_gates + gate, di.to(kind), mask=mask)
    tl.store(d_gates + gate + H, df.to(kind), mask=mask)
    tl.store(d_gates + gate + 2 * H, dg.to(kind), mask=mask)
    tl.store(d_gates + gate + 3 * H, do.to(kind), mask=mask)
    sums = d_bias + (tl.program_id(0) * 2 + d) * (4 * H) + col
    inside = col < H
    si = tl.sum(di, 0)
    sf = tl.sum(df, 0)
    sg = tl.sum(dg, 0)
    so = tl.sum(do, 0)
    if not LAST:
        si += tl.load(sums, mask=inside, other=0.0)
        sf += tl.load(sums + H, mask=inside, other=0.0)
        sg += tl.load(sums + 2 * H, mask=inside, other=0.0)
        so += tl.load(sums + 3 * H, mask=inside, other=0.0)
    tl.store(sums, si, mask=inside)
    tl.store(sums + H, sf, mask=inside)
    tl.store(sums + 2 * H, sg, mask=inside)
    tl.store(sums + 3 * H, so, mask=inside)


@triton.jit
def softmax_gradient(
    logits,  # [frames, pdfs]; becomes d loss / d logits
    targets,  # [frames] int64
    scale,  # [1] float32: 1 / frames that count
    losses,  # [frames] float32: scaled losses
    pdfs: tl.constexpr,
    ignore: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program a frame: normaliser in a first pass over its logits, gradient in a second."""
    row = tl.program_id(0)
    start = logits + row.to(tl.int64) * pdfs
    cols = tl.arange(0, BLOCK)
    target = tl.load(targets + row)
    weight = tl.where(target == ignore, 0.0, tl.load(scale))
    tops = tl.full((BLOCK,), -float("inf"), tl.float32)
    sums = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, pdfs, BLOCK):
        inside = first + cols < pdfs
        x = tl.load(start + first + cols, mask=inside, other=-1e30).to(tl.float32)
        higher = tl.maximum(tops, x)
        sums = sums * tl.exp(tops - higher) + tl.exp(x - higher)
        tops = higher
    top = tl.max(tops, 0)
    total = tl.sum(sums * tl.exp(tops - top), 0)
    normaliser = top + tl.log(total)
    wanted = tl.load(start + tl.where(target == ignore, 0, target)).to(tl.float32)
    tl.store(losses + row, (normaliser - wanted) * weight)
    tl.debug_barrier()  # no thread writes before all have read the target's logit
    for first in range(0, pdfs, BLOCK):
        at = first + cols
        inside = at < pdfs
        x = tl.load(start + at, mask=inside, other=-1e30).to(tl.float32)
        gradient = tl.exp(x - normaliser) * weight - tl.where(at == target, weight, 0.0)
        tl.store(start + at, gradient.to(logits.dtype.element_ty), mask=inside)
