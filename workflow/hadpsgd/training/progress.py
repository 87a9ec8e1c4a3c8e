"""How training goes: rows of metrics, a line on stderr, held-out scores gathered from all ranks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from hadpsgd.decentralized.core.engine import Engine
from hadpsgd.models.loss import FrameScore
from hadpsgd.tracking.pace import Pace
from hadpsgd.training.board import Board
from hadpsgd.training.evaluation import named, total
from hadpsgd.training.metrics import Meter, Metrics, say
from hadpsgd.training.patience import Patience

LINE_SECONDS = 5.0
SHARED = ("learner_frames_per_second", "loss", "staleness", "mixes_per_step", "consensus_distance")
"""What every learner tells rank 0, for its rows."""


class Progress:
    """What one rank tells. Nobody ever waits for another rank here.

    `epoch` is the last one that it has passed.

    Held-out scores of an epoch: each rank scores its share of the held-out examples with its own
    weights as its epoch ends, and rank 0 adds the shares up once all are there. So with
    learners that differ it is the mean over the learners, not the score of their mean. Each rank
    keeps its shares among its rows, where they outlive an interruption: some ranks may have ended
    an epoch by then, and others not.
    """

    def __init__(
        self,
        board: Board,
        metrics: Metrics,
        engine: Engine,
        *,
        epoch: int,
        steps_per_epoch: int,
        epochs: int,
        every_seconds: float,
        stamp: Callable[[], dict[str, float]] = dict,
        early_stop: int = 0,
    ) -> None:
        """`stamp` tells what rows have besides their numbers: the time of training so far."""
        self.board = board
        self.metrics = metrics
        self.engine = engine
        self.rank = engine.place.rank
        self.steps_per_epoch = steps_per_epoch
        self.epochs = epochs
        self.every_seconds = every_seconds
        self.stamp = stamp
        self._said = time.monotonic()
        self.pace = Pace()
        shares = {r["step"]: r["heldout_share"] for r in metrics.kept if "heldout_share" in r}
        for step, share in shares.items():
            board.post(f"heldout/{step // steps_per_epoch}", share)
        told = {row["step"] for row in metrics.kept if "heldout_loss" in row}
        self._waiting = [step // steps_per_epoch for step in sorted(shares.keys() - told)]
        self.patience = Patience(early_stop).hear(metrics.kept)
        """What rank 0 makes of the held-out losses."""
        self.epoch = epoch
        self._last = max((row["step"] for row in metrics.kept if "loss" in row), default=0)
        board.post("epoch", epoch)

    def tell(self, *, step: int, lr: float, meter: Meter) -> None:
        """A row if it is time, and a line; of learners that share their work some do a step twice,
        or one that was given back: the curve goes on behind it.
        """
        if step <= self._last:
            return
        if meter.seconds < self.every_seconds and step % self.steps_per_epoch:
            return
        self._last = step
        row = {
            "step": step,
            "epoch": step / self.steps_per_epoch,
            "whole": {"epochs": self.epochs},
            "lr": lr,
            **self.stamp(),
            **meter.row(),
        }
        meter.reset()
        self.board.post("learner", {name: row[name] for name in SHARED if name in row})
        everybody = self.board.read("learner") if self.rank == 0 else {self.rank: row}
        speed = sum(other["learner_frames_per_second"] for other in everybody.values())
        row["frames_per_second"] = speed
        if self.rank == 0:  # as they last told: nobody is waited for
            for rank, other in everybody.items():
                row |= {f"learner_{rank}/{name}": value for name, value in other.items()}
        self.metrics.write(**row)
        self.pace.add({**row, "time": time.time()})
        self._collect()
        if self.rank == 0 and time.monotonic() - self._said > LINE_SECONDS:
            self._said = time.monotonic()
            self._line(row)

    def _line(self, row: dict[str, Any]) -> None:
        apart = row.get("consensus_distance")
        say(
            f"epoch {row['epoch']:.2f}/{self.epochs}  step {row['step']}  loss {row['loss']:.4f}  "
            f"lr {row['lr']:.4g}  {row['frames_per_second']:,.0f} frames/s  "
            f"staleness {row['staleness']:.2f}  mixes/step {row['mixes_per_step']:.2f}  "
            f"communication {100 * row['share_communication']:.1f} %"
            + ("" if apart is None else f"  apart {100 * apart:.2f} %")
            + (f"  {left}" if (left := self.pace.text()) else "")
        )

    def evaluated(self, score: FrameScore, epoch: int) -> None:
        """This rank's share of the held-out scores after an epoch."""
        self.epoch = epoch
        self.metrics.write(step=epoch * self.steps_per_epoch, heldout_share=list(score))
        self.board.post(f"heldout/{epoch}", list(score))
        self.board.post("epoch", epoch)
        self._waiting.append(epoch)
        self._collect()

    def finish(self, seconds: float = 10.0) -> None:
        """At the end, wait a while for the scores that are still to come."""
        deadline = time.monotonic() + seconds
        while self.rank == 0 and self._waiting and time.monotonic() < deadline:
            self._collect()
            time.sleep(0.02)
        self._collect(even_without_all=True)

    def close(self) -> None:
        """No more rows."""
        self.metrics.close()

    def _collect(self, *, even_without_all: bool = False) -> None:
        if self.rank != 0 or not self._waiting:
            return
        common = self.epochs if even_without_all else self._epoch_of_all()
        for epoch in [e for e in self._waiting if e <= common]:
            self._waiting.remove(epoch)
            shares = self.board.read(f"heldout/{epoch}")
            row = named(total(FrameScore(*share) for share in shares.values())) | self.stamp()
            self.metrics.write(step=epoch * self.steps_per_epoch, epoch=float(epoch), **row)
            self.patience.heard(epoch, loss=row["heldout_loss"])
            say(
                f"epoch {epoch}/{self.epochs} done: held-out loss {row['heldout_loss']:.4f}, "
                f"frame accuracy {100 * row['heldout_accuracy']:.2f} %"
            )

    def _epoch_of_all(self) -> int:
        """The last epoch that all living ranks have ended (newcomers: have passed)."""
        ended = self.board.read("epoch")
        return min(ended.get(rank, 0) for rank in self.engine.ranks)
