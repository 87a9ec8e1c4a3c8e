"""A learner's share of a data loader: of every `learners` batches, one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader

from hadpsgd.decentralized.drawing import Drawn, check_resumed, drawn, sampler_of
from hadpsgd.errors import UserError


class Batches:
    """Stands in for a loader's batch sampler: this rank's batches, of equal number everywhere.

    The order is drawn from the seed and the epoch, alike on all ranks; batches that are too few for
    all ranks, at the end, are left out.

    Args:
        sampler: the loader's own.
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
        self._drawn: Drawn | None = None
        """Of an epoch, which is drawn once."""

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self.sampler) // self.learners  # type: ignore[arg-type]

    def all(self) -> Drawn:
        """Those of all ranks, in this epoch."""
        if self._drawn is None or self._drawn.epoch != self.epoch:
            self._drawn = drawn(self.sampler, seed=self.seed, epoch=self.epoch)
        return self._drawn

    def __iter__(self) -> Iterator[list[Any]]:
        batches = self.all().batches
        rounds = len(batches) // self.learners
        yield from batches[self.rank : rounds * self.learners : self.learners][self.first :]


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

    def drawn(self) -> str:
        """Names the batches of this epoch, or of a sequence how many; empty if none are known."""
        if self._batches is not None:
            self._batches.epoch = self.epoch
            return self._batches.all().name
        return str(len(self._loader)) if isinstance(self._loader, Sequence) else ""

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        drawn = self.drawn() if self.position else ""
        return {"epoch": self.epoch, "position": self.position, "drawn": drawn}

    def restore(self, state: dict[str, Any]) -> None:
        """What `state` gave.

        Raises:
            UserError: the epoch has other batches now.
        """
        self.epoch, self.position = state["epoch"], state["position"]
        check_resumed(state, self.drawn())

    def __iter__(self) -> Iterator[Any]:
        for batch in self._rest():
            self.position += 1
            yield batch
        if not self.position:
            if iter(self._loader) is self._loader:
                raise UserError(
                    f"share() was given an iterator, which has no epoch {self.epoch + 1}",
                    fix="Give it a DataLoader, a list, or an object that begins anew",
                )
            raise too_few(learners=self.learners)
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


def too_few(*, learners: int) -> UserError:
    """An epoch in which nobody would have anything to learn from."""
    if learners == 1:
        return UserError("an epoch has no batch", fix="Give share() more data")
    return UserError(
        f"an epoch has fewer batches than the {learners} learners that each take one",
        fix="Make batches smaller, or start fewer learners",
    )


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
