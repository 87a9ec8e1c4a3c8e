"""The training: from a text to model.pt, by `decentralize` alone."""

from __future__ import annotations

import hashlib
import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hadpsgd.config.neural_lm import NeuralLm
from hadpsgd.decentralized.core.engine import NotFiniteError
from hadpsgd.decentralized.offered import decentralize
from hadpsgd.decentralized.trainer import Trainer
from hadpsgd.errors import UserError
from hadpsgd.lm.neural import text
from hadpsgd.lm.neural.model import LstmLm, Shape
from hadpsgd.lm.neural.score import log_probs, perplexity_of
from hadpsgd.models.backend import allow_tf32
from hadpsgd.progress import Progress
from hadpsgd.rank_checkpoints import Checkpoints

LEARNERS_WAIT = 86400.0
"""Seconds that learners wait for each other: the first one numbers the text meanwhile."""
_DEV_SENTENCES = 4096


@dataclass(kw_only=True)
class Best:
    """The epoch that predicts the development text best so far.

    rows: of all epochs, what is told of them. weights: of that epoch.
    """

    epoch: int
    perplexity: float
    weights: dict[str, Tensor]
    rows: list[dict[str, float]]


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training.

    Args:
        settings: of the config.
        seed: of first weights, order and dropout.
        words: how many.
        train, dev: folders that `text.write` wrote, by the time the learners have met.
        checkpoints: their folder.
        rank, learners: this process, of so many.
        agreed: what must be the same at all learners.
    """

    settings: NeuralLm
    seed: int
    words: int
    train: Path
    dev: Path
    checkpoints: Path
    rank: int
    learners: int
    agreed: str

    def run(self, device: torch.device) -> tuple[LstmLm, Best]:
        """Train to the end, from the last checkpoint if there is one.

        The network has the mean of all learners' weights; alone, those of the best epoch.

        Raises:
            UserError: fewer sentences than learners, or it diverged.
        """
        wanted = self.settings
        shape = Shape(
            layers=wanted.layers, cells=wanted.cells, tied=wanted.tied, dropout=wanted.dropout
        )
        torch.manual_seed(self.seed)  # the same first weights on every rank
        allow_tf32(False)
        model = LstmLm(self.words, shape).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=wanted.learning_rate, fused=True)
        trainer = decentralize(
            model,
            optimizer,
            strategy=self.settings.strategy,
            clip_norm=self.settings.clip_norm,
            seed=self.seed,
            seconds=LEARNERS_WAIT,
            agree_on=self.agreed,
        )
        files = Checkpoints(self.checkpoints, trainer.meeting)
        spoken, dev = text.Text(self.train), text.Text(self.dev)
        share = trainer.share(spoken.batches(self.settings.batch))
        if not len(share):
            what = f"{len(spoken)} sentences are too few for {self.learners} learners"
            raise UserError(f"lm.neural: {what}", fix="Lower lm.neural.batch or learners")
        best = Best(epoch=0, perplexity=math.inf, weights={}, rows=[])
        if found := files.newest():
            _, state = found
            trainer.load_state_dict(state["trainer"])
            best = Best(**state["best"])
            _say(f"rank {self.rank} goes on from epoch {share.epoch}")
        try:
            with trainer:  # at its end, all weights are averaged
                while share.epoch < self.settings.epochs:
                    row = self._epoch(trainer, optimizer, share, device)
                    if self.rank == 0:
                        row["dev_perplexity"] = perplexity(model, dev)
                        if not math.isfinite(row["dev_perplexity"]):
                            raise diverged(share.epoch)
                        keep(best, share.epoch, row, model)
                        _say(_line(share.epoch, row))
                    state = {"trainer": trainer.state_dict(), "best": vars(best)}
                    files.save(share.epoch, state)
        except NotFiniteError:
            raise diverged(share.epoch + 1) from None
        if self.learners == 1:
            model.load_state_dict(best.weights)
        return model.eval(), best

    def _epoch(
        self, trainer: Trainer, optimizer: torch.optim.Optimizer, share: Any, device: torch.device
    ) -> dict[str, float]:
        """One pass; its mean loss (nats a word) and seconds."""
        model = trainer.engine.module
        epoch, begin, total, count = share.epoch, time.monotonic(), 0.0, 0
        # dropout of an epoch is the same, whether it is gone on from a checkpoint or not
        torch.manual_seed((self.seed + 1) * 1_000_003 + epoch * self.learners + self.rank)
        model.train()
        name = f"epoch {epoch + 1} of {self.settings.epochs}"
        progress = Progress(name, len(share), "batches")
        for inputs, targets in share:
            for group in optimizer.param_groups:
                group["lr"] = self.rate(share.progress)
            targets = targets.to(device)
            loss = model(inputs.to(device), targets)
            loss.backward()
            trainer.step()
            words = int((targets != text.PADDED).sum())
            total, count = total + float(loss.detach()) * words, count + words
            if self.rank == 0:
                progress.add()
        seconds = time.monotonic() - begin
        return {"loss": total / max(count, 1), "words": count, "seconds": round(seconds, 1)}

    def rate(self, progress: float) -> float:
        """The learning rate after so many epochs: half a cosine, down to 0."""
        share = min(progress / self.settings.epochs, 1.0)
        return self.settings.learning_rate * 0.5 * (1.0 + math.cos(math.pi * share))


def diverged(epoch: int) -> UserError:
    """What to tell of it."""
    what = f"the training diverged in epoch {epoch}"
    return UserError(f"lm.neural: {what}", fix="Lower lm.neural.learning_rate")


def keep(best: Best, epoch: int, row: dict[str, float], model: nn.Module) -> None:
    """Note an epoch; its weights, where it is better than all before."""
    best.rows.append({"epoch": epoch, **row})
    if row["dev_perplexity"] < best.perplexity or not best.weights:
        best.epoch, best.perplexity = epoch, row["dev_perplexity"]
        best.weights = weights_of(model)


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Copies in the host's memory."""
    return {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}


def perplexity(model: LstmLm, spoken: text.Text) -> float:
    """Of a text, per word with sentence ends; words outside the vocabulary are one of its words."""
    training = model.training
    model.eval()
    total = 0.0
    for chunk in _chunks(spoken):
        total += sum(float(row.sum()) for row in log_probs(model, chunk))
    model.train(training)
    return perplexity_of(total, count=spoken.events)


def _chunks(spoken: text.Text) -> Iterator[list[list[int]]]:
    """Sentences without their beginning and end, many at a time."""
    for low in range(0, len(spoken), _DEV_SENTENCES):
        high = min(low + _DEV_SENTENCES, len(spoken))
        yield [spoken[number][1:-1].tolist() for number in range(low, high)]


def identity_of(**deciding: Any) -> str:
    """Hash of all that decides the result."""
    made = json.dumps(deciding, sort_keys=True)
    return hashlib.sha256(made.encode()).hexdigest()[:12]


def _line(epoch: int, row: dict[str, float]) -> str:
    return (
        f"epoch {epoch}: loss {row['loss']:.3f}, dev perplexity {row['dev_perplexity']:.2f},"
        f" {row['seconds']:.0f} s"
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
