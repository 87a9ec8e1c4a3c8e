"""What is counted over an epoch and over held-out pictures; one row of JSON an epoch and rank."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hadpsgd.errors import UserError
from hadpsgd.training.row_file import RowFile, after_all


@dataclass(kw_only=True)
class Score:
    """Sums over images."""

    images: int = 0
    loss: float = 0.0
    top1: int = 0
    top5: int = 0

    def add(self, output: Tensor, labels: Tensor, loss: float) -> None:
        """A batch: [images, classes], [images], its mean loss."""
        count = len(labels)
        best = output.detach().topk(min(5, output.shape[1])).indices == labels[:, None]
        self.images += count
        self.loss += loss * count
        self.top1 += int(best[:, 0].sum())
        self.top5 += int(best.sum())

    def means(self) -> dict[str, float] | dict[str, None]:
        """By image; top-1 and top-5 as shares of all. None where there was none."""
        if not (of := self.images):
            return dict.fromkeys(("loss", "top1", "top5"))
        return {"loss": self.loss / of, "top1": self.top1 / of, "top5": self.top5 / of}

    def state(self) -> dict[str, float]:
        """For a checkpoint in the middle of an epoch: `Score(**state)`."""
        return asdict(self)


def criterion(output: object, labels: Tensor) -> Tensor:
    """Cross-entropy.

    Raises:
        UserError: a network that gives several outputs.
    """
    if not isinstance(output, Tensor):
        raise UserError("this network gives more than one output", fix="Choose another --model")
    return nn.functional.cross_entropy(output, labels)


@torch.no_grad()
def evaluate(
    network: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], device: torch.device
) -> Score:
    """With the running statistics, which stay as they are."""
    score, training = Score(), network.training
    network.eval()
    for images, labels in batches:
        images, labels = images.to(device), labels.to(device)
        output = network(images)
        score.add(output, labels, float(criterion(output, labels)))
    network.train(training)
    return score


class Rows:
    """A rank's file, a row for each epoch done.

    A process that was given up and goes on does not take the rows of its successor with it.

    Args:
        file: where they are read.
        epochs: those of a checkpoint; rows of later ones go.
    """

    def __init__(self, file: Path, *, epochs: int) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = RowFile(
            file, process=after_all(file), counts=lambda row: row.get("epoch", math.inf) <= epochs
        )
        self.rows = list(self._file.kept)

    def add(self, row: dict[str, Any]) -> None:
        """One more epoch."""
        self.rows.append(row)
        self._file.write(row)

    def close(self) -> None:
        """No more rows."""
        self._file.close()
