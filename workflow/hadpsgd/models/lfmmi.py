"""Lattice-free maximum mutual information (Povey et al. 2016, equation 1), after cross-entropy.

A pdf-id's log-likelihood in a frame is k (logit - log prior), k the acoustic scale: log-softmax
differs from the logits by the same number for all pdf-ids of a frame, which numerator and
denominator have in common. The loss of a frame is (denominator - numerator) / k, so its gradient
with respect to the logits is the difference of both occupancies, whatever the scale.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from hadpsgd.config.stage import Stage
from hadpsgd.graph.denominator import Denominator
from hadpsgd.models.blstm import BLSTM
from hadpsgd.models.denominator import DenominatorSum
from hadpsgd.models.loss import IGNORE, FrameScore, cross_entropy
from hadpsgd.models.numerator import numerator_sum


class SequenceLoss(nn.Module):
    """The loss of a minibatch as a module's output: what an engine may wrap.

    Neither priors nor the denominator are buffers: nothing of them is mixed or saved.
    """

    def __init__(
        self, model: BLSTM, denominator: Denominator, log_priors: Tensor, stage: Stage
    ) -> None:
        """`log_priors`: of the pdf-ids [pdf-ids], of the alignment that gives the labels."""
        super().__init__()
        self.model = model
        self.stage = stage
        parameter = model.output.weight
        device, dtype = parameter.device, torch.promote_types(parameter.dtype, torch.float32)
        self._log_priors = [log_priors.to(device, dtype)]
        self._sum = DenominatorSum(denominator, device=device, dtype=dtype)

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        """Mean loss of a frame, with the share of cross-entropy that the stage wants.

        Args:
            x: [batch, frames, input_dim].
            targets: pdf-ids [batch, frames], int64; IGNORE behind the end of an utterance.
        """
        logits = self._logits(x, targets)
        loss: Tensor = _Mmi.apply(logits, targets, self)
        if self.stage.cross_entropy:
            loss = loss + self.stage.cross_entropy * cross_entropy(logits, targets)
        return loss

    @torch.no_grad()
    def score(self, x: Tensor, targets: Tensor) -> FrameScore:
        """Held-out loss and frame accuracy of a batch, as sums to add up over batches."""
        logits = self._logits(x, targets)
        counted = targets != IGNORE
        frames = int(counted.sum())
        loss, _ = self.mmi(logits, targets)
        if self.stage.cross_entropy:
            loss = loss + self.stage.cross_entropy * cross_entropy(logits, targets)
        correct = ((logits.argmax(-1) == targets) & counted).sum()
        return FrameScore(loss=float(loss) * frames, correct=int(correct), frames=frames)

    def _logits(self, x: Tensor, targets: Tensor) -> Tensor:
        """Of each example as if it stood alone: the backward direction begins with its last frame,
        as in decoding, not in the padding behind it."""
        lengths = (targets != IGNORE).sum(1) if len(targets) else None
        logits: Tensor = self.model(x, lengths)
        return logits.to(self._log_priors[0].dtype)

    def mmi(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The mean loss of a frame, and its gradient with respect to the logits."""
        if not len(targets):  # a learner's share of a small minibatch
            return logits.new_zeros(()), torch.zeros_like(logits)
        scale, lengths = self.stage.acoustic_scale, (targets != IGNORE).sum(1)
        frames = lengths.sum().clamp(min=1)
        scores = scale * (logits - self._log_priors[0])
        # under autocast bf16 is the network's alone; a processor has no sparse products in it
        with torch.autocast(logits.device.type, enabled=False):
            said = numerator_sum(scores, targets, lengths, tolerance=self.stage.tolerance)
            could = self._sum(scores, lengths)
        loss = (could.log_likelihood - said.log_likelihood).sum() / (scale * frames)
        return loss, (could.shares - said.shares) / frames


class _Mmi(torch.autograd.Function):
    """The gradient comes with the loss; backward only scales it."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, of: SequenceLoss) -> Tensor:
        loss, gradient = of.mmi(logits, targets)
        ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return gradient * grads[0], None, None
