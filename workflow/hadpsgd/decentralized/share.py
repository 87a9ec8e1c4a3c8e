"""A learner's share of a data loader: of every `learners` batches, one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset


class Batches:
    """Stands in for a loader's batch sampler: this rank's batches, of equal number everywhere.

    The order is drawn from the seed and the epoch, alike on all ranks; batches that are too few for
    all ranks, at the end, are left out.

    Args:
        sampler: the loader's own; it may draw from torch's global generator.
        rank, learners: whose share of how many.
        seed: of the order.
    """

    def __init__(
        self, sampler: Iterable[list[Any]], *, rank: int, learners: int, seed: int
    ) -> None:
        self.sampler = sampler
        self.rank = rank
        self.learners = learners
        self.seed = seed
        self.epoch = self.first = 0

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self.sampler) // self.learners  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[list[Any]]:
        batches = drawn(self.sampler, seed=self.seed, epoch=self.epoch)
        rounds = len(batches) // self.learners
        yield from batches[self.rank : rounds * self.learners : self.learners][self.first :]


def drawn(sampler: Iterable[list[Any]], *, seed: int, epoch: int) -> list[list[Any]]:
    """The batches of an epoch, alike on all ranks."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed + epoch)
        return list(sampler)


class Share:
    """Iterate over it once an epoch; it knows where it is, so that a checkpoint does.

    A `DataLoader` over a dataset with numbered examples loads this rank's batches only. Any other
    iterable must give the same on every rank, and every rank runs through all of it.
    """

    def __init__(self, loader: Iterable[Any], *, rank: int, learners: int, seed: int = 0) -> None:
        self.rank = rank
        self.learners = learners
        self.epoch = 0
        """Epochs done."""
        self.position = 0
        """Batches handed out in this one."""
        self._loader = loader
        self._batches: Batches | None = None
        sampler = sampler_of(loader)
        if sampler is not None:
            assert isinstance(loader, DataLoader)
            self._batches = Batches(sampler, rank=rank, learners=learners, seed=seed)
            self._loader = with_batches(loader, self._batches)

    def __len__(self) -> int:
        """Batches of an epoch."""
        if self._batches is not None:
            return len(self._batches)
        return len(self._loader) // self.learners  # type: ignore[arg-type]

    @property
    def progress(self) -> float:
        """Epochs before the batch in hand, with a fraction."""
        return self.epoch + (max(self.position - 1, 0) / len(self) if self.position else 0.0)

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"epoch": self.epoch, "position": self.position}

    def restore(self, state: dict[str, Any]) -> None:
        """What `state` gave."""
        self.epoch, self.position = state["epoch"], state["position"]

    def __iter__(self) -> Iterator[Any]:
        for batch in self._rest():
            self.position += 1
            yield batch
        self.epoch, self.position = self.epoch + 1, 0

    def _rest(self) -> Iterator[Any]:
        if self._batches is not None:
            self._batches.epoch, self._batches.first = self.epoch, self.position
            return iter(self._loader)
        return islice(self._rounds(), self.position, None)

    def _rounds(self) -> Iterator[Any]:
        batches = iter(self._loader)
        while len(round_ := list(islice(batches, self.learners))) == self.learners:
            yield round_[self.rank]


def sampler_of(loader: object) -> Any:
    """The sampler whose batches are lists of examples' numbers, if there is one."""
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return None
    return loader.batch_sampler


def with_batches(
    loader: DataLoader[Any], batches: Iterable[list[Any]], *, ahead: int | None = None
) -> DataLoader[Any]:
    """The same loader with other batches; `ahead`: those that a worker loads ahead."""
    workers: dict[str, Any] = (
        {
            "prefetch_factor": ahead or loader.prefetch_factor,
            "persistent_workers": loader.persistent_workers,
        }
        if loader.num_workers
        else {}
    )
    return DataLoader(
        loader.dataset,
        batch_sampler=batches,  # type: ignore[arg-type]
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=loader.generator,
        **workers,
    )
