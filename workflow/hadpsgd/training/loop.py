"""The training loop, top to bottom."""

from __future__ import annotations

import time
from enum import IntEnum

import torch

from hadpsgd.training.board import Board
from hadpsgd.training.evaluation import evaluate
from hadpsgd.training.interrupt import Interrupt
from hadpsgd.training.job import Job
from hadpsgd.training.metrics import Meter, Metrics
from hadpsgd.training.progress import Progress
from hadpsgd.training.rate import rate


class End(IntEnum):
    """Exit status of a rank."""

    DONE = 0
    REQUEUE = 75  # EX_TEMPFAIL: run the same command again, it goes on where it stopped


def train(job: Job) -> End:
    """Train until the last step or an interruption; resumes from the newest checkpoint."""
    engine, settings = job.engine, job.config.training
    resume(job)
    place, steps_per_epoch = engine.place, job.steps_per_epoch
    progress = Progress(
        Board(job.meeting),
        Metrics(job.out, place.rank, engine.steps),
        place,
        steps_per_epoch=steps_per_epoch,
        epochs=settings.epochs,
        every_seconds=job.config.tracking.every_seconds,
    )
    meter = Meter(engine.rounds)
    interrupt = Interrupt(engine.request_stop)
    saved = time.monotonic()
    with interrupt, engine:
        batches = job.feed.batches(engine.steps)
        while engine.steps < job.total:
            with meter.waiting_for_data():
                x, y = next(batches)
            if job.config.model.dropout:  # a resumed run draws the same masks
                torch.manual_seed(hash((job.config.seed, place.rank, engine.steps)))
            with job.autocast:
                loss = engine.module(x, y)
            loss.backward()
            lr = rate(settings.learning_rate, settings.batch, engine.steps / steps_per_epoch)
            report = engine.step(lr, last=engine.steps + 1 == job.total)
            meter.add(loss.item(), y.numel(), report)
            progress.tell(engine.steps, engine.rounds, lr, meter)
            if engine.steps % steps_per_epoch == 0:
                score = evaluate(job.model, job.dev_feed.share(place.rank, place.world))
                progress.evaluated(score, engine.steps)
            if time.monotonic() - saved > 60 * settings.checkpoint_minutes:
                saved = time.monotonic()
                if place.rank == 0:
                    engine.request_pause()
            if engine.over:
                break
            if engine.paused:
                save(job)
        while not engine.over:
            engine.serve()
            if engine.paused and not engine.over:
                save(job)
        job.checkpoints.save(engine.state_dict())
        progress.finish()
    return End.DONE if engine.steps == job.total else End.REQUEUE


def save(job: Job) -> None:
    """All learners stand still: write this one's part and go on."""
    job.checkpoints.save(job.engine.state_dict())
    job.engine.go_on()


def resume(job: Job) -> None:
    """Take up the newest sound checkpoint, if any."""
    state = job.checkpoints.load()
    if state is not None:
        job.engine.load_state_dict(state)
