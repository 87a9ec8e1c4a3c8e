"""Weights of the ends of epochs: the best epoch's, or the mean of several, in place of the last's.

As Kaldi's nnet3 and icefall average the models of their last iterations. As a learner passes the
end of an epoch it keeps a copy of its weights, pending mixes included, and the version that its
record has then: a replay has the same weights at the same version. Of the last epoch the weights
count in which training ends.

What a learner has kept stands in its part of every checkpoint, so a run that goes on from one
counts what that knew and nothing that was lost. A file is named by the
weights, too: a process that was given up, or is of a former start, may go on and write what it
wants, without changing what others have kept. Epochs weigh the same, and so do the learners of
each; one that came later lacks those before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from hadpsgd.config.settings import Settings
from hadpsgd.decentralized.core.engine import Engine
from hadpsgd.errors import UserError
from hadpsgd.files import DAMAGED_ARRAYS, atomic_file, write_text

CHOICE = "choice.json"
Told = tuple[int, str]
"""What is known of weights at the end of an epoch: their version and their checksum."""


def mean(rows: Iterable[Tensor]) -> Tensor:
    """Of tensors of one shape, summed in their order, in double precision; gone through once."""
    total, count = torch.zeros((), dtype=torch.float64), 0
    for row in rows:
        total = total.add_(row) if count else row.to(torch.float64, copy=True)
        count += 1
    return total / count


def folder_of(checkpoints: Path) -> Path:
    """Where the weights of epochs lie, in the folder of a run's checkpoints."""
    return checkpoints / "epochs"


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A (super-)learner's weights at the end of an epoch."""

    epoch: int
    node: int
    version: int
    """Of the weights, in its record."""
    checksum: str
    """Of the weights."""

    def file(self, checkpoints: Path) -> Path:
        """Where they are: a flat tensor."""
        name = f"{self.epoch:04d}-node-{self.node}-at-{self.version}-{self.checksum}.pt"
        return folder_of(checkpoints) / name


class Kept:
    """The weights that one (super-)learner has kept.

    Args:
        checkpoints: the folder of the run's checkpoints.
        node: whose weights.
        training: how many epochs there are, and the mean of how many is wanted.
        writes: whether this process is the one of the super-learner that does.
    """

    def __init__(
        self, checkpoints: Path, node: int, training: Settings, *, writes: bool = True
    ) -> None:
        self.checkpoints = checkpoints
        self.node = node
        self.writes = writes
        first = 1 if training.early_stop else training.epochs - training.average_last + 1
        self._wanted = range(first, training.epochs)
        self._kept: dict[int, Told] = {}

    def passed(self, epochs: Iterable[int], engine: Engine) -> None:
        """Keep the weights of this moment, if they are wanted: these epochs have just ended.

        Raises:
            UserError: no space, or no permission.
        """
        wanted = [epoch for epoch in epochs if epoch in self._wanted]
        if not wanted or not self.writes:
            return
        weights, version = engine.snapshot()
        weights = weights.cpu()
        checksum = _checksum(weights)
        for epoch in wanted:
            ended = Ended(epoch=epoch, node=self.node, version=version, checksum=checksum)
            file = ended.file(self.checkpoints)
            with atomic_file(file) as temporary, temporary.open("wb") as stream:
                torch.save(weights, stream)  # given a path, torch does not say that a disk is full
            self._kept[epoch] = version, checksum

    def state(self) -> dict[str, Any]:
        """What a checkpoint has to know; empty where nothing is kept."""
        return {"epochs": dict(self._kept)} if self._kept else {}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Count what this learner's part of a checkpoint knows."""
        self._kept = dict(state.get("epochs", {}))


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which weights became the final ones at the end of a run, for its replay."""

    moment: str
    """Of the checkpoint of the end."""
    end: bool
    """Whether the weights in which training ended are among them."""
    kept: dict[int, dict[int, Told]]
    """Epoch before that -> (super-)learner -> its weights."""

    def write(self, checkpoints: Path) -> None:
        """Beside the weights."""
        write_text(folder_of(checkpoints) / CHOICE, json.dumps(asdict(self), indent=2) + "\n")

    def weights(self, of: Callable[[Ended], Tensor], *, last: Tensor) -> Tensor:
        """The mean over the epochs of the learners' mean of each, in their order.

        `of` gets a learner's weights; `last` is the mean of those in which training ended.
        """
        return mean(chain(self._of_epochs(of), [last] * self.end))

    def _of_epochs(self, of: Callable[[Ended], Tensor]) -> Iterator[Tensor]:
        for epoch, kept in sorted(self.kept.items()):
            yield mean(
                of(Ended(epoch=epoch, node=node, version=version, checksum=checksum))
                for node, (version, checksum) in sorted(kept.items())
            )

    @property
    def needed(self) -> set[tuple[int, int]]:
        """The (super-)learners and their versions of which a replay needs the weights."""
        return {(n, version) for kept in self.kept.values() for n, (version, _) in kept.items()}


def choice_of(checkpoints: Path, moment: str) -> Choice | None:
    """What was chosen at the end of a run; None where nothing was, or this is not its end."""
    try:
        found = json.loads((folder_of(checkpoints) / CHOICE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    if found["moment"] != moment:
        return None
    kept = {
        int(epoch): {int(node): (version, checksum) for node, (version, checksum) in of.items()}
        for epoch, of in found.pop("kept").items()
    }
    return Choice(kept=kept, **found)


def by_epoch(kept: Mapping[int, Mapping[int, Told]]) -> dict[int, dict[int, Told]]:
    """What is known by node and epoch, the other way round."""
    epochs = sorted({epoch for epochs in kept.values() for epoch in epochs})
    return {
        epoch: {node: kept[node][epoch] for node in sorted(kept) if epoch in kept[node]}
        for epoch in epochs
    }


def load(ended: Ended, checkpoints: Path) -> Tensor:
    """What was kept.

    Raises:
        UserError: it is not there, or damaged.
    """
    file, fix = ended.file(checkpoints), "Remove the run's checkpoint folder and train again"
    if not file.is_file():
        raise UserError("the weights of an epoch are gone", where=file, fix=fix)
    try:
        weights: Tensor = torch.load(file, map_location="cpu", weights_only=True)
        sound = _checksum(weights) == ended.checksum
    except (*DAMAGED_ARRAYS, UnpicklingError):
        sound = False
    if not sound:
        raise UserError("the weights of an epoch are damaged", where=file, fix=fix)
    return weights


def _checksum(weights: Tensor) -> str:
    """Of a flat tensor on the host: 16 hexadecimal digits."""
    return hashlib.sha256(weights.view(torch.uint8).numpy().data).hexdigest()[:16]
