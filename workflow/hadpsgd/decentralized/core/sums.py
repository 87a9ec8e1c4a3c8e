"""Sums over learners in one order, so that all who compute them get the same bits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


def mean_of(rows: Tensor | Sequence[Tensor], out: Tensor) -> None:
    """Mean of n tensors [elements] into `out` (not one of them), summed in their order."""
    if len(rows) == 1:
        out.copy_(rows[0])
        return
    torch.add(rows[0], rows[1], out=out)
    for row in rows[2:]:
        out.add_(row)
    # by a tensor: by a number, a GPU would multiply with its rounded inverse
    out.div_(out.new_full((), len(rows)))


def combine(own: Tensor, total: float, others: Iterable[tuple[Tensor, float]], out: Tensor) -> None:
    """out = sum_j share_j (x_j - own), in the order given; `total` is the sum of the shares."""
    torch.mul(own, -total, out=out)
    for weights, share in others:
        out.add_(weights, alpha=share)
