"""Held-out loss and frame accuracy."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from hadpsgd.errors import UserError
from hadpsgd.models.loss import FrameScore
from hadpsgd.training.criterion import Criterion
from hadpsgd.training.data import Example


def evaluate(model: Criterion, batches: Iterable[Example]) -> FrameScore:
    """Sums over all frames of the batches; the model comes back in training mode."""
    model.eval()
    scores = [model.score(x, y) for x, y in batches]
    model.train()
    return total(scores)


def total(scores: Iterable[FrameScore]) -> FrameScore:
    """Scores added up."""
    losses, corrects, frames = zip(*scores, strict=True)
    return FrameScore(loss=sum(losses), correct=sum(corrects), frames=sum(frames))


def named(score: FrameScore) -> dict[str, float]:
    """As metrics: cross-entropy (nats a frame) and the share of frames right."""
    frames = max(1, score.frames)
    return {"heldout_loss": score.loss / frames, "heldout_accuracy": score.correct / frames}


def pick_device(wanted: str, local_rank: int) -> torch.device:
    """The device of a rank: a GPU where there is one, its own where there are enough.

    Raises:
        UserError: a GPU is wanted, and there is none.
    """
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UserError("training.device is cuda: torch finds no GPU", fix="Set it to auto or cpu")
    return torch.device("cuda", local_rank % torch.cuda.device_count())
