"""A bidirectional LSTM over an utterance of any length, in memory that its chunks need."""

from __future__ import annotations

import torch
from torch import Tensor

from hadpsgd.models.blstm import BLSTM
from hadpsgd.models.steps import apart, joined

CHUNK = 4096
"""Frames of a chunk; an utterance that has no more is computed at once."""
_NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


@torch.inference_mode()
def hidden(model: BLSTM, x: Tensor, chunk: int = CHUNK) -> Tensor:
    """What `model.hidden` gives of one utterance: [frames, dim] → [frames, projection].

    Layer by layer, each direction chunk after chunk with its state carried on: what a step sees is
    the same, but gates are held of one chunk alone. Two layers' outputs are held whole.
    """
    if len(x) <= chunk:
        return model.hidden(x[None])[0]
    frames, count = len(x), model.frames_per_step
    x = joined(x[None], None, count)[0][0]
    for layer in range(model.lstm.num_layers):
        x = _layer(model.lstm, layer, x, chunk)
    found = [model.projection(part) for part in x.split(chunk)]
    return apart(torch.cat(found)[None], frames=frames, count=count)[0]


def _layer(lstm: torch.nn.LSTM, layer: int, x: Tensor, chunk: int) -> Tensor:
    """Both directions: [frames, dim] → [frames, 2 cells]."""
    cells = lstm.hidden_size
    out = x.new_empty(len(x), 2 * cells)
    for number, end in enumerate(("", "_reverse")):
        weights = [getattr(lstm, f"{name}_l{layer}{end}") for name in _NAMES]
        nothing = x.new_zeros(1, 1, cells)
        state = nothing, nothing
        columns = slice(number * cells, (number + 1) * cells)
        starts = range(0, len(x), chunk)
        for at in reversed(starts) if number else starts:
            part = x[at : at + chunk]
            part = part.flip(0) if number else part
            # biases, one layer, no dropout, no training, one direction, time before batch
            result, *last = torch.lstm(
                part[:, None], state, weights, True, 1, 0.0, False, False, False
            )
            state = last[0], last[1]
            result = result[:, 0]
            out[at : at + chunk, columns] = result.flip(0) if number else result
    return out
