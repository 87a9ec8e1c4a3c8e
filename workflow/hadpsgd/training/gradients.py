"""One gradient: forward and backward of a minibatch, the same way in training and in replay."""

from __future__ import annotations

from typing import SupportsFloat

import numpy as np
import torch
from torch import Tensor, nn

from hadpsgd.config import RunSettings
from hadpsgd.training import arithmetic as ways
from hadpsgd.training.captured import Captured


class Late:
    """A loss that is on its way from a GPU: only who reads it waits, and hardly ever long, as the
    norm of the gradient comes after it."""

    def __init__(self, loss: Tensor) -> None:
        self._value = torch.empty((), dtype=loss.dtype, pin_memory=True)
        self._value.copy_(loss, non_blocking=True)
        self._arrival = torch.cuda.current_stream(loss.device).record_event()

    def __float__(self) -> float:
        self._arrival.synchronize()
        return float(self._value)


class Gradients:
    """Adds gradients to a model's buffers.

    Args:
        module: gives the loss of (features, pdf-ids).
        settings: dropout and seed.
        device: of the model.
        arithmetic: of the model's forward pass, see hadpsgd.training.arithmetic.
        captured: as CUDA graphs (`arithmetic.can_capture`).
    """

    def __init__(
        self,
        module: nn.Module,
        settings: RunSettings,
        device: torch.device,
        *,
        arithmetic: str,
        captured: bool = False,
    ) -> None:
        self.module = module
        self.seed = settings.seed
        self.draws = ways.draws(settings)
        self.arithmetic = arithmetic
        self.device = device
        self._take = Captured(self._plain, module) if captured else self._plain

    def take(self, x: Tensor, targets: Tensor, *, rank: int, step: int) -> SupportsFloat:
        """Backward of learner `rank`'s minibatch number `step`; its loss."""
        if self.draws:  # masks depend on the step alone, so a resumed run draws the same
            words = np.random.SeedSequence([self.seed, rank, step]).generate_state(1, np.uint64)
            torch.manual_seed(int(words[0] >> np.uint64(1)))
        loss = self._take(x, targets)
        return Late(loss) if loss.is_cuda else float(loss)

    def _plain(self, x: Tensor, targets: Tensor) -> Tensor:
        with ways.mode(self.arithmetic, self.device):
            loss: Tensor = self.module(x, targets)
        loss.backward()
        return loss.detach()
