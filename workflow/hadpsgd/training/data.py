"""A learner's part of every step, from any step on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch

from hadpsgd.config import RunSettings
from hadpsgd.egs.dataset import Batch, Change, Dataset, Plan
from hadpsgd.egs.masking import Masks
from hadpsgd.training.staging import Example, Sender, Sent, pinned

EVALUATION_BATCH = 64


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
        self.masks = masks
        self._sender = Sender(device, dtype)
        if device.type == "cuda":
            dataset.empty = pinned

    def batches(self, start: int, end: int | None = None) -> Iterator[Example]:
        """From step `start` of the run on, endless or before `end`; read ahead by a thread.

        On a GPU a batch is sent before the one in front of it is given out.
        """
        sent: Sent | None = None
        for batch in islice(self._endless(start), None if end is None else end - start):
            before, sent = sent, self._sender.send(batch)
            if not self._sender.beside:
                yield sent.arrived()
            elif before is not None:
                yield before.arrived()
        if sent is not None and self._sender.beside:
            yield sent.arrived()

    def _endless(self, start: int) -> Iterator[Batch]:
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
            yield from part
            epoch, within = epoch + 1, 0

    def _change(self, epoch: int) -> Change | None:
        if (masks := self.masks) is None:
            return None
        return lambda features, examples: masks(features, epoch=epoch, examples=examples)

    def block(self, block: int) -> Sent:
        """Part `block` mod learners of step `block` // learners of the run."""
        step, part = divmod(block, self.learners)
        epoch, within = divmod(step, self.plan.steps)
        indices = self.plan.part(epoch=epoch, step=within, rank=part, learners=self.learners)
        return self._sender.send(self.dataset.batch(within, indices, self._change(epoch)))

    def example(self, *, step: int, rank: int) -> Example:
        """Any learner's part of any step."""
        return self.block(step * self.learners + rank).arrived()

    def share(self, *, rank: int, learners: int) -> Iterator[Example]:
        """This rank's share of all examples, once, in batches (evaluation)."""
        first, last = (len(self.dataset) * r // learners for r in (rank, rank + 1))
        for start in range(first, last, EVALUATION_BATCH):
            part = np.arange(start, min(start + EVALUATION_BATCH, last))
            yield self.tensors(Batch(0, *self.dataset.gather(part)))

    def tensors(self, batch: Batch) -> Example:
        """On the device, labels as the loss wants them."""
        return self._sender.send(batch).arrived()
