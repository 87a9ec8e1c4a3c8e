"""The papers' learning-rate rule (arXiv 1904.04956, as remembered; every number is a setting).

The rate at `base_batch` is scaled linearly with the batch; it warms up linearly from the base to
the scaled rate, stays there, and is multiplied by 1/sqrt(2) every epoch after the tenth.
"""

from __future__ import annotations

from hadpsgd.config.settings import LearningRate


def scaled(settings: LearningRate, batch: int) -> float:
    """The rate that warm-up ends at: base * batch / base_batch."""
    return settings.base * batch / settings.base_batch


def rate(settings: LearningRate, *, batch: int, epoch: float) -> float:
    """Learning rate at a moment of training.

    Args:
        settings: the config's section.
        batch: subsequences of a step over all learners.
        epoch: epochs done, whole and parts.
    """
    top = scaled(settings, batch)
    if epoch < settings.warmup_epochs:
        # a batch below base_batch has nothing to warm up to
        start = min(settings.base, top)
        return start + (top - start) * epoch / settings.warmup_epochs
    if epoch < settings.anneal_after:
        return top
    return top * settings.anneal_factor ** (int(epoch - settings.anneal_after) + 1)
