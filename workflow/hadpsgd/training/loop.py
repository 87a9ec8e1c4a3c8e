"""The training loop, top to bottom."""

from __future__ import annotations

import time
from enum import IntEnum
from typing import Any

from hadpsgd.errors import UserError
from hadpsgd.training.board import Board
from hadpsgd.training.evaluation import evaluate
from hadpsgd.training.interrupt import Interrupt
from hadpsgd.training.job import Job, record_file
from hadpsgd.training.metrics import Meter, Metrics, say
from hadpsgd.training.progress import Progress
from hadpsgd.training.rate import rate


class End(IntEnum):
    """Exit status of a rank."""

    DONE = 0
    REQUEUE = 75  # EX_TEMPFAIL: run the same command again, it goes on where it stopped


def train(job: Job) -> End:
    """Train until the last step or an interruption; resumes from the newest checkpoint."""
    engine, settings = job.engine, job.settings.training
    if resume(job):
        return End.DONE
    place, steps_per_epoch = engine.place, job.steps_per_epoch
    progress = Progress(
        Board(job.meeting),
        Metrics(job.out, rank=place.rank, step=engine.steps),
        engine,
        steps_per_epoch=steps_per_epoch,
        epochs=settings.epochs,
        every_seconds=job.every_seconds,
    )
    meter = Meter(engine)
    interrupt = Interrupt(engine.request_stop)
    saved = time.monotonic()
    with interrupt, engine:
        batches = job.feed.batches(engine.steps)
        while engine.steps < job.total:
            with meter.waiting_for_data():
                x, y = next(batches)
            begin = time.monotonic()
            loss = job.gradients.take(x, y, rank=place.rank, step=engine.steps)
            time.sleep(
                job.injection.pause(
                    learner=place.rank, step=engine.steps, seconds=time.monotonic() - begin
                )
            )
            lr = rate(
                settings.learning_rate, batch=settings.batch, epoch=engine.steps / steps_per_epoch
            )
            report = engine.step(lr, last=engine.steps + 1 == job.total)
            meter.add(loss=loss, frames=y.numel(), report=report)
            progress.tell(step=engine.steps, lr=lr, meter=meter)
            if engine.steps % steps_per_epoch == 0:
                score = evaluate(
                    job.model, job.dev_feed.share(rank=place.rank, learners=place.world)
                )
                progress.evaluated(score, engine.steps)
            if time.monotonic() - saved > 60 * settings.checkpoint_minutes:
                saved = time.monotonic()
                if engine.leads:
                    engine.request_pause()
            if engine.over:
                break
            if engine.paused:
                save(job)
        while not engine.over:
            engine.serve()
            if engine.paused and not engine.over:
                save(job)
        job.checkpoints.save(state(job), job.engine)
        job.checkpoints.settle()
        if engine.complete:
            progress.finish()
        progress.close()
    return End.DONE if engine.steps == job.total else End.REQUEUE


def save(job: Job) -> None:
    """All learners stand still: write this one's part and go on."""
    job.checkpoints.save(state(job), job.engine)
    job.engine.go_on()


def state(job: Job) -> dict[str, Any]:
    """What a checkpoint holds. The data's position and the random numbers follow from the step."""
    engine = job.engine
    lengths = record_lengths(job) if engine.leads else {}
    return engine.state_dict() | {"complete": engine.complete, "dead": lengths}


def record_lengths(job: Job) -> dict[int, int]:
    """Bytes of the records of super-learners that are dead: so far they count."""
    files = {n: record_file(job.checkpoints.folder, n) for n in range(job.engine.place.nodes)}
    dead = files.keys() - set(job.engine.alive)
    return {n: files[n].stat().st_size for n in dead if files[n].exists()}


def resume(job: Job) -> bool:
    """Be where the others are, or take up the newest sound checkpoint; whether it is the end.

    Raises:
        UserError: the checkpoint lies behind the end: it is not of this run.
    """
    engine, node = job.engine, job.engine.place.node
    if job.meeting.joining:
        engine.join(job.meeting.timeout.total_seconds())
        say(f"{job.run.id}: learner {engine.place.rank} joined at its step {engine.steps}")
        return False
    saved = job.checkpoints.find()
    if saved is None:
        return False
    source = saved.source(node)
    found = saved.load(source)
    if source == node:
        engine.load_state_dict(found)
    else:
        lengths = [saved.load(other)["dead"].get(node, 0) for other in saved.parts()]
        engine.take_place(found, source=source, record_bytes=max(lengths))
    say(f"{job.run.id}: learner {engine.place.rank} resumed at step {engine.steps}")
    if engine.steps > job.total:
        raise UserError(
            f"a checkpoint of step {engine.steps}, and the run ends at {job.total}",
            where=saved.folder,
            fix="Remove it, or give the run the epochs that it was made with",
        )
    if engine.steps == job.total:
        engine.no_more_gradients()
    return bool(found["complete"])
