"""Cross-entropy of a linear layer by Triton: the logits are computed twice and never stored.

A first pass finds each frame's normaliser; a second writes the gradient of the logits of a chunk
of frames, which two large products turn into the gradients of hidden values and weights.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from hadpsgd.models.backend import add_product, use_kernels

LN2 = math.log(2)


class Tile(NamedTuple):
    """Frames and pdfs of a tile, warps and pipeline stages of a kernel."""

    rows: int
    cols: int
    warps: int
    stages: int


NORMALISERS = Tile(rows=128, cols=128, warps=8, stages=2)
GRADIENT = Tile(rows=128, cols=64, warps=8, stages=3)
PROGRAMS = 264
"""Programs that a kernel is cut into at least: two for each multiprocessor of an H100."""


def suits(x: Tensor) -> bool:
    """The kernels can work on these hidden values (a power of two wide, at most 256, 16 bit)."""
    width = x.shape[1]
    return (
        use_kernels(x) and x.dtype.itemsize == 2 and 16 <= width <= 256 and not width & (width - 1)
    )


def normalisers(x: Tensor, w: Tensor, b: Tensor, tile: Tile = NORMALISERS) -> Tensor:
    """log2 of the sum over pdfs of e^logit, float32 [frames]."""
    from hadpsgd.models import kernels

    frames, pdfs = len(x), len(w)
    blocks, splits, span = _grid(frames, pdfs, tile)
    tops, sums = x.new_empty((2, splits, frames), dtype=torch.float32).unbind(0)
    kernels.normalisers[(blocks, splits)](
        x, w, b, tops, sums, frames, span, pdfs=pdfs, D=x.shape[1], ROWS=tile.rows,
        COLS=tile.cols, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    top = tops.amax(0)
    return top + (sums * torch.exp2(tops - top)).sum(0).log2()


def logit_gradient(
    x: Tensor, w: Tensor, b: Tensor, targets: Tensor, normaliser: Tensor, scale: Tensor,
    out: Tensor, ignore: int, tile: Tile = GRADIENT,
) -> Tensor:  # fmt: skip
    """Write d loss / d logits [frames, pdfs] to `out`; return its column sums, float32."""
    from hadpsgd.models import kernels

    frames, pdfs = len(x), len(w)
    blocks, splits, span = _grid(frames, pdfs, tile)
    d_bias = x.new_empty((blocks, pdfs), dtype=torch.float32)
    kernels.logit_gradient[(blocks, splits)](
        x, w, b, targets, normaliser, scale, out, d_bias, frames, span, pdfs=pdfs, ignore=ignore,
        D=x.shape[1], ROWS=tile.rows, COLS=tile.cols, num_warps=tile.warps,
        num_stages=tile.stages,
    )  # fmt: skip
    return d_bias.sum(0)


def loss_and_gradients(
    x: Tensor, w: Tensor, b: Tensor, targets: Tensor, *, chunk: int, ignore: int, gradients: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mean loss, and its gradients of x, w and b (not computed without `gradients`)."""
    counts = targets != ignore
    scale = 1.0 / counts.sum().clamp(min=1).float()
    normaliser = normalisers(x, w, b)
    wanted = targets.clamp(min=0)
    logit = (x.float() * w[wanted].float()).sum(1) + b[wanted].float()
    loss = ((normaliser * LN2 - logit) * counts).sum() * scale
    dx = torch.empty_like(x)
    dw = torch.zeros_like(w, dtype=torch.float32)
    db = torch.zeros_like(b, dtype=torch.float32)
    if gradients:
        buffer = x.new_empty((min(chunk, len(x)), len(w)))
        for start in range(0, len(x), chunk):
            rows = slice(start, start + chunk)
            part = x[rows]
            gradient = buffer[: len(part)]
            db += logit_gradient(
                part, w, b, targets[rows], normaliser[rows], scale, gradient, ignore
            )
            torch.mm(gradient, w, out=dx[rows])
            add_product(dw, gradient.T, part)
    return loss, dx, dw, db


def _grid(frames: int, pdfs: int, tile: Tile) -> tuple[int, int, int]:
    blocks = -(-frames // tile.rows)
    columns = -(-pdfs // tile.cols)
    splits = min(columns, max(1, -(-PROGRAMS // blocks)))
    span = -(-columns // splits) * tile.cols
    return blocks, -(-pdfs // span), span
