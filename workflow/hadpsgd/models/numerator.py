"""Forward-backward through what was said, all examples of a minibatch at once.

The labels of an example are runs of one pdf-id each. A path goes through the runs in their order;
its borders may lie up to some frames beside those of the alignment (the tolerance of Kaldi's chain
supervision), also across the example's ends. Transitions cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hadpsgd.models.denominator import Occupancies


@dataclass(frozen=True)
class _Runs:
    """The runs of a minibatch, filled up to K."""

    pdf: Tensor
    """[batch, K]."""
    open: Tensor
    """Whether a run may have a frame [batch, frames, K]."""


def numerator_sum(
    scores: Tensor, labels: Tensor, lengths: Tensor, *, tolerance: int
) -> Occupancies:
    """Log-likelihoods and occupancies.

    Args:
        scores: log-likelihoods of pdf-ids [batch, frames, pdf-ids].
        labels: pdf-ids [batch, frames]; anything behind the end.
        lengths: frames that count, at the begin of every example [batch].
        tolerance: frames that a border may lie beside the alignment's.
    """
    frames = scores.shape[1]
    runs = _runs(labels, lengths, tolerance)
    of_runs = scores.gather(2, runs.pdf[:, None].expand(-1, frames, -1))
    of_runs = of_runs.masked_fill(~runs.open, -torch.inf)
    counts = torch.arange(frames, device=scores.device) < lengths[:, None]
    forward = [of_runs[:, 0]]
    for t in range(1, frames):
        moved = torch.logaddexp(forward[-1], _shifted(forward[-1], 1)) + of_runs[:, t]
        forward.append(torch.where(counts[:, t, None], moved, forward[-1]))
    total = torch.where(lengths > 0, forward[-1].logsumexp(-1), 0)
    shares = torch.zeros_like(scores)
    after = torch.zeros_like(forward[-1])
    for t in range(frames - 1, -1, -1):
        if t + 1 < frames:
            seen = after + of_runs[:, t + 1]
            reached = torch.logaddexp(seen, _shifted(seen, -1))
            after = torch.where(counts[:, t + 1, None], reached, 0)
        share = (forward[t] + after - total[:, None]).exp() * counts[:, t, None]
        shares[:, t].scatter_add_(1, runs.pdf, share)
    return Occupancies(total, shares)


def _shifted(values: Tensor, by: int) -> Tensor:
    """Of the run before (1) or behind (-1); impossible where there is none."""
    edge = torch.full_like(values[:, :1], -torch.inf)
    if by > 0:
        return torch.cat([edge, values[:, :-1]], 1)
    return torch.cat([values[:, 1:], edge], 1)


def _runs(labels: Tensor, lengths: Tensor, tolerance: int) -> _Runs:
    batch, frames = labels.shape
    at = torch.arange(frames, device=labels.device)
    counts = at < lengths[:, None]
    begins = counts.clone()
    begins[:, 1:] &= labels[:, 1:] != labels[:, :-1]
    number = begins.cumsum(1) - 1  # of the run that a frame belongs to
    most = max(1, int(number.max()) + 1)
    # frames behind the end have a place of their own, which is dropped
    place = torch.where(counts, number, most)
    pdf = torch.zeros((batch, most + 1), dtype=torch.long, device=labels.device)
    pdf.scatter_(1, place, labels.clamp(min=0))
    first = torch.full((batch, most + 1), 2 * frames + tolerance, device=labels.device)
    first.scatter_reduce_(1, place, at.expand(batch, -1), "amin")
    last = torch.full((batch, most + 1), -frames - tolerance - 1, device=labels.device)
    last.scatter_reduce_(1, place, at.expand(batch, -1), "amax")
    first, last = first[:, None, :most], last[:, None, :most]
    frame = at[None, :, None]
    allowed = (first - tolerance <= frame) & (frame <= last + tolerance)
    return _Runs(pdf[:, :most], allowed)
