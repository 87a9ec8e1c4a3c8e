"""Several frames as one step of a network, which labels each of them (Vanhoucke, Devin and Heigold
2013, "Multiframe deep neural networks for acoustic modeling").

The network makes a third of the steps, say, while alignments, HMMs and decoding stay at 100 frames
a second. Steps begin with an utterance's first frame; its last frame fills up the last step.
"""

from __future__ import annotations

import torch
from torch import Tensor


def joined(x: Tensor, lengths: Tensor | None, count: int) -> tuple[Tensor, Tensor | None]:
    """Frames [batch, frames, dim] → steps [batch, frames / count rounded up, count dim].

    `lengths` (frames of each utterance) become steps of each, which hold nothing of the padding.
    """
    if count == 1:
        return x, lengths
    batch, frames, dim = x.shape
    steps = (frames + count - 1) // count
    at = torch.arange(steps * count, device=x.device)
    if lengths is None:
        x = x.index_select(1, at.clamp(max=frames - 1))
    else:
        lengths = lengths.to(x.device)
        at = torch.minimum(at, lengths.clamp(min=1)[:, None] - 1)
        x = x.gather(1, at[:, :, None].expand(-1, -1, dim))
        lengths = (lengths + count - 1) // count
    return x.reshape(batch, steps, count * dim), lengths


def apart(x: Tensor, *, frames: int, count: int) -> Tensor:
    """Steps [batch, steps, count dim] → frames [batch, frames, dim]."""
    if count == 1:
        return x
    batch, steps, width = x.shape
    return x.reshape(batch, steps * count, width // count)[:, :frames]
