"""A learner's part of every step, from any step on."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import partial
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray

from hadpsgd.config import RunSettings
from hadpsgd.egs.dataset import Dataset, Plan
from hadpsgd.egs.masking import Masks
from hadpsgd.models.loss import IGNORE
from hadpsgd.training.staging import Example, Sender, Sent, asked, pinned
from hadpsgd.training.unpacking import Unpacker

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
        self.device = device
        self.dtype = dtype
        self._sender = Sender(device)
        self._unpack = Unpacker(dataset, device, dtype) if device.type == "cuda" else None

    def batches(self, start: int, end: int | None = None) -> Generator[Example, None, None]:
        """From step `start` of the run on, endless or before `end`; read and sent ahead by a
        thread."""
        for sent in islice(self._endless(start), None if end is None else end - start):
            yield sent.arrived()

    def _endless(self, start: int) -> Iterator[Sent]:
        epoch, within = divmod(start, self.plan.steps)
        while True:
            yield from self.dataset.batches(
                self.plan,
                partial(self._send, epoch=epoch),
                epoch=epoch,
                rank=self.rank,
                learners=self.learners,
                start=within,
            )
            epoch, within = epoch + 1, 0

    def block(self, block: int) -> Sent:
        """Part `block` mod learners of step `block` // learners of the run."""
        step, part = divmod(block, self.learners)
        epoch, within = divmod(step, self.plan.steps)
        indices = self.plan.part(epoch=epoch, step=within, rank=part, learners=self.learners)
        return self._send(indices, epoch=epoch)

    def example(self, *, step: int, rank: int) -> Example:
        """Any learner's part of any step."""
        return self.block(step * self.learners + rank).arrived()

    def share(self, *, rank: int, learners: int) -> Iterator[Example]:
        """This rank's share of all examples, once, in batches (evaluation)."""
        first, last = (len(self.dataset) * r // learners for r in (rank, rank + 1))
        for start in range(first, last, EVALUATION_BATCH):
            yield self.of(np.arange(start, min(start + EVALUATION_BATCH, last)))

    def of(self, indices: NDArray[np.int64]) -> Example:
        """These subsequences, without masks."""
        return self._sender.send(partial(self._made, indices)).arrived()

    def _send(self, indices: NDArray[np.int64], *, epoch: int) -> Sent:
        return self._sender.send(partial(self._made, indices, epoch=epoch))

    def _made(self, indices: NDArray[np.int64], *, epoch: int | None = None) -> Example:
        """On the device, labels as the loss wants them; with the masks of an epoch."""
        masks = None if epoch is None else self.masks
        if self._unpack is not None:
            x, targets = self._unpack(self.dataset.stored(indices, pinned))
            if masks is not None and epoch is not None:
                for columns, covered in masks.covers(x.shape[1], epoch=epoch, examples=indices):
                    x[:, :, columns].masked_fill_(asked(covered, self.device), 0.0)
            return x, targets
        features, labels = self.dataset.gather(indices)
        if masks is not None and epoch is not None:
            masks(features, epoch=epoch, examples=indices)
        # by NumPy: torch would start threads beside this one
        wanted = np.where(labels < 0, np.int64(IGNORE), labels)
        if self.dtype == torch.float64:
            return torch.from_numpy(features.astype(np.float64)), torch.from_numpy(wanted)
        return torch.from_numpy(features), torch.from_numpy(wanted)
