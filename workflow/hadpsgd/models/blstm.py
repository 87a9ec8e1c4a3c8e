"""The papers' acoustic model: bidirectional LSTM layers, linear projection, softmax over pdf-ids.

With 6 layers of 512 cells per direction, projection 256, 32,000 outputs and input 260 it has
43,154,944 parameters, as in arXiv 2002.01119 (165 MB).
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hadpsgd.models import bf16_lstm, fast
from hadpsgd.models.loss import IGNORE, FrameScore, linear_cross_entropy, score_frames
from hadpsgd.models.steps import apart, joined


class Shape(Protocol):
    """What the config's section `model` says (any object with these attributes will do)."""

    @property
    def layers(self) -> int: ...
    @property
    def cells(self) -> int: ...
    @property
    def projection(self) -> int: ...
    @property
    def dropout(self) -> float: ...
    @property
    def frames_per_step(self) -> int: ...


class TrainedShape(Shape, Protocol):
    """What training asks for beside that: see `BLSTM`."""

    @property
    def input_dropout(self) -> float: ...
    @property
    def output_dropout(self) -> float: ...


class BLSTM(nn.Module):
    """Hybrid acoustic model: the logits of each frame, normalised, are posteriors of pdf-ids.

    Initialisation depends on `seed` alone, not on the device or on random numbers drawn before:
    LSTM weights uniform in ±1/sqrt(cells), linear weights uniform in ±1/sqrt(inputs), biases 0
    but 1 for the forget gate (Jozefowicz et al. 2015), so that gradients pass through time from
    the first step.

    Args:
        shape: layers, cells per direction, projection units, dropout between layers, and the
            frames that a step of the LSTM reads and labels (`hadpsgd.models.steps`).
        input_dim: values of an input frame.
        num_pdfs: outputs (pdf-ids).
        seed: seed of the initial weights.
        input_dropout: share of the input's values left out in training, the same in all frames of
            an example (Gal & Ghahramani 2016, "A theoretically grounded application of dropout in
            recurrent neural networks").
        output_dropout: the same of the last LSTM layer's outputs, before the projection.
        device: where the parameters live; `meta` only counts them.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        input_dim: int,
        num_pdfs: int,
        seed: int = 0,
        input_dropout: float = 0.0,
        output_dropout: float = 0.0,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        self.input_dim = input_dim
        self.num_pdfs = num_pdfs
        self.frames_per_step = shape.frames_per_step
        self.input_dropout = input_dropout
        self.output_dropout = output_dropout
        self.own_layers = False
        """Under autocast, hadpsgd.models.bf16_lstm computes what `lstm` has the weights of; on a
        GPU hadpsgd.models.fast does."""
        self.lstm = nn.LSTM(
            input_dim * shape.frames_per_step,
            shape.cells,
            num_layers=shape.layers,
            dropout=shape.dropout if shape.layers > 1 else 0.0,
            bidirectional=True,
            batch_first=True,
            device=device,
        )
        units = shape.projection * shape.frames_per_step
        self.projection = nn.Linear(2 * shape.cells, units, device=device)
        self.output = nn.Linear(shape.projection, num_pdfs, device=device)
        self.initialise(seed)

    @classmethod
    def for_training(
        cls, shape: TrainedShape, *, input_dim: int, num_pdfs: int, seed: int
    ) -> BLSTM:
        """The model that a run begins with."""
        return cls(
            shape,
            input_dim=input_dim,
            num_pdfs=num_pdfs,
            seed=seed,
            input_dropout=shape.input_dropout,
            output_dropout=shape.output_dropout,
        )

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """Draw all parameters anew from `seed` (on the CPU, so that devices agree)."""
        generator = torch.Generator().manual_seed(seed)
        cells = self.lstm.hidden_size
        for name, parameter in self.named_parameters():
            if parameter.is_meta:
                continue
            if parameter.dim() == 2:
                fan = cells if name.startswith("lstm.") else parameter.shape[1]
                bound = 1 / math.sqrt(fan)
                values = torch.rand(parameter.shape, generator=generator)
                parameter.copy_(values.mul_(2 * bound).sub_(bound))
            else:
                parameter.zero_()
                if "bias_ih" in name:  # gates in PyTorch's order: input, forget, cell, output
                    parameter[cells : 2 * cells] = 1.0

    def hidden(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Input of the output layer: [batch, frames, dim] → [batch, frames, projection].

        `lengths` (frames of each utterance, any order) makes utterances of different lengths,
        padded to one length, come out as each would alone; no frame of padding is seen.
        """
        frames = x.shape[1]
        x = self._without(x, self.input_dropout)
        x, lengths = joined(x, lengths, self.frames_per_step)
        own = self.own_layers and torch.is_autocast_enabled(x.device.type)
        if not x.is_cuda and (own or lengths is not None):  # packed, nn.LSTM takes 3 times as long
            states = bf16_lstm.blstm(self.lstm, x, lengths, torch.bfloat16 if own else x.dtype)
        elif own and lengths is None:
            states = fast.blstm(self.lstm, x)
        elif lengths is None:
            states, _ = self.lstm(x)
        else:
            packed = nn.utils.rnn.pack_padded_sequence(
                x, lengths.cpu(), batch_first=True, enforce_sorted=False
            )
            states, _ = nn.utils.rnn.pad_packed_sequence(
                self.lstm(packed)[0], batch_first=True, total_length=x.shape[1]
            )
        found = self.projection(self._without(states, self.output_dropout))
        return apart(found, frames=frames, count=self.frames_per_step)

    def _without(self, x: Tensor, share: float) -> Tensor:
        """In training, x [batch, frames, dim] without a share of its dimensions, in all frames."""
        if not (self.training and share):
            return x
        return x * F.dropout(x.new_ones(x.shape[0], 1, x.shape[2]), share)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Logits: x [batch, frames, input_dim] → [batch, frames, num_pdfs]; see `hidden`."""
        return self.output(self.hidden(x, lengths))

    def loss(self, x: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy over frames, to call `backward` on.

        Args:
            x: [batch, frames, input_dim].
            targets: pdf-ids [batch, frames], int64; frames of `loss.IGNORE` do not count.
        """
        return linear_cross_entropy(self.hidden(x), self.output.weight, self.output.bias, targets)

    @torch.no_grad()
    def score(self, x: Tensor, targets: Tensor) -> FrameScore:
        """Held-out loss and frame accuracy of a batch, as sums to add up over batches; of padded
        examples as if each stood alone."""
        counted = targets != IGNORE
        lengths = None if bool(counted.all()) else counted.sum(1)
        return score_frames(self.hidden(x, lengths), self.output.weight, self.output.bias, targets)
