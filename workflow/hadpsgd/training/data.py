"""A learner's part of every step, from any step on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from hadpsgd.config import RunSettings
from hadpsgd.egs.dataset import Batch, Change, Dataset, Plan
from hadpsgd.egs.masking import Masks
from hadpsgd.models.loss import IGNORE

EVALUATION_BATCH = 64
Example = tuple[Tensor, Tensor]
"""Features [subsequences, frames, dim] and pdf-ids [subsequences, frames], padding IGNORE."""


def plan_of(settings: RunSettings, examples: Dataset) -> Plan:
    """The order in which a run goes through its examples."""
    training = settings.training
    return Plan(
        size=len(examples),
        batch=training.batch,
        seed=settings.seed,
        together=training.read_together,
    )


class Feed:
    """Batches of one learner; a step's number is all there is to the position in the data."""

    def __init__(
        self,
        dataset: Dataset,
        plan: Plan,
        *,
        rank: int,
        learners: int,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        masks: Masks | None = None,
    ) -> None:
        """`masks` are for training: `share` and `dataset` have none."""
        self.dataset = dataset
        self.plan = plan
        self.rank = rank
        self.learners = learners
        self.device = device
        self.dtype = dtype
        self.masks = masks

    def batches(self, start: int) -> Iterator[Example]:
        """Endless, from step `start` of the run on; read ahead by a thread."""
        epoch, within = divmod(start, self.plan.steps)
        while True:
            part = self.dataset.batches(
                self.plan,
                epoch=epoch,
                rank=self.rank,
                learners=self.learners,
                start=within,
                change=self._change(epoch),
            )
            for batch in part:
                yield self.tensors(batch)
            epoch, within = epoch + 1, 0

    def _change(self, epoch: int) -> Change | None:
        if (masks := self.masks) is None:
            return None
        return lambda features, examples: masks(features, epoch=epoch, examples=examples)

    def block(self, block: int) -> Batch:
        """Part `block` mod learners of step `block` // learners of the run, not yet on a device."""
        step, part = divmod(block, self.learners)
        epoch, within = divmod(step, self.plan.steps)
        indices = self.plan.part(epoch=epoch, step=within, rank=part, learners=self.learners)
        return self.dataset.batch(within, indices, self._change(epoch))

    def example(self, *, step: int, rank: int) -> Example:
        """Any learner's part of any step."""
        return self.tensors(self.block(step * self.learners + rank))

    def share(self, *, rank: int, learners: int) -> Iterator[Example]:
        """This rank's share of all examples, once, in batches (evaluation)."""
        first, last = (len(self.dataset) * r // learners for r in (rank, rank + 1))
        for start in range(first, last, EVALUATION_BATCH):
            part = np.arange(start, min(start + EVALUATION_BATCH, last))
            yield self.tensors(Batch(0, *self.dataset.gather(part)))

    def tensors(self, batch: Batch) -> Example:
        """On the device, labels as the loss wants them."""
        labels = torch.from_numpy(batch.labels).long()
        labels[labels < 0] = IGNORE
        features = torch.from_numpy(batch.features)
        return (
            features.to(self.device, self.dtype, non_blocking=True),
            labels.to(self.device, non_blocking=True),
        )
