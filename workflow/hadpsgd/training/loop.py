"""The training loop, top to bottom."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, SupportsFloat

from hadpsgd.decentralized.core.engine import ExcludedError, LostMemberError
from hadpsgd.training import helping, pulse, turn
from hadpsgd.training.backward import backward
from hadpsgd.training.board import Board
from hadpsgd.training.end import End
from hadpsgd.training.evaluation import evaluate
from hadpsgd.training.interrupt import Interrupt
from hadpsgd.training.job import Job
from hadpsgd.training.metrics import Meter, Metrics, say
from hadpsgd.training.patience import NOTICE
from hadpsgd.training.progress import Progress
from hadpsgd.training.rate import rate
from hadpsgd.training.saved import Saved
from hadpsgd.training.work import Piece, Work, behind_the_end, shares, work_of


def train(job: Job) -> End:
    """Train until the last step or an interruption; resumes from the newest checkpoint.

    A member whose super-learner has lost another one helps its first one until that is replaced, or
    takes the first one's place.
    """
    saved, ended = resume(job)
    while not ended:
        try:
            return run(job, saved)
        except (LostMemberError, ExcludedError) as lost:
            word = helping.go_on(job, lost)
        if not word.life:
            return End.DONE if word.finished else End.REQUEUE
        saved, ended = resume(job)
    return End.DONE


def run(job: Job, saved: Saved | None) -> End:
    """From where `resume` has brought this learner."""
    engine, settings = job.engine, job.settings.training
    work = work_of(job, saved)
    steps_per_epoch = job.steps_per_epoch
    metrics = Metrics(
        job.out,
        rank=engine.place.rank,
        step=work.progress,
        process=(job.checkpoints.start(), job.meeting.life),
    )
    progress = Progress(
        Board(job.meeting),
        metrics,
        engine,
        epoch=work.progress // steps_per_epoch,
        steps_per_epoch=steps_per_epoch,
        epochs=settings.epochs,
        every_seconds=job.every_seconds,
        stamp=stopwatch(metrics),
        early_stop=settings.early_stop,
    )
    meter = Meter(engine)
    interrupt = Interrupt(engine.request_stop)
    written = time.monotonic()
    with closing(progress), interrupt, engine, work:
        lr = 0.0
        while not (work.over or engine.over):
            pulse.works()
            with meter.waiting_for_data():
                piece = work.take()
            if piece is None:  # others do what is left, and may need this learner's mixes
                if meter.steps:
                    progress.tell(step=work.progress, lr=lr, meter=meter)
                pulse.waits()
                engine.rest()
            else:
                lr = rate(
                    settings.learning_rate, batch=settings.batch, epoch=piece.step / steps_per_epoch
                )
                if step(job, work, piece, lr, meter):
                    work.finish(piece)
                    progress.tell(step=work.progress, lr=lr, meter=meter)
            evaluate_epochs(job, progress, work.progress // steps_per_epoch)
            if progress.patience.enough and not job.enough:
                stop_early(job, progress)
            if time.monotonic() - written > 60 * settings.checkpoint_minutes:
                written = time.monotonic()
                if engine.leads:
                    engine.request_pause()
            if engine.paused and not engine.over:
                save(job)
        if work.over and not engine.over:
            engine.no_more_gradients()
        while not engine.over:
            engine.serve()
            if engine.paused and not engine.over:
                save(job)
        job.enough |= bool(progress.board.read(NOTICE))
        job.checkpoints.save(state(job), job.engine)
        job.checkpoints.settle()
        if engine.complete:
            progress.finish()
    return End.DONE if work.over or job.enough else End.REQUEUE


def stopwatch(metrics: Metrics) -> Callable[[], dict[str, float]]:
    """Tells the seconds of training so far: those of earlier attempts as their rows have them,
    without what lay between two attempts."""
    before = max((row.get("seconds", 0.0) for row in metrics.kept), default=0.0)
    begin = time.monotonic()
    return lambda: {"seconds": before + time.monotonic() - begin}


def step(job: Job, work: Work, piece: Piece, lr: float, meter: Meter) -> bool:
    """One gradient, applied; again from the start if members of the super-learner are lost.

    False if the run stops before that: others are waited for.
    """
    engine, first = job.engine, piece.rank - job.engine.place.member

    def take(member: int) -> tuple[SupportsFloat, int]:
        example = piece.example if first + member == piece.rank else None
        return backward(job, step=piece.step, rank=first + member, example=example)

    while True:
        if engine.alone:
            let_in(job, work)
            if engine.over:
                return False
        try:
            loss, frames = engine.take(take, (piece.step, first))
            pulse.waits()
            report = engine.step(lr, last=piece.last, block=piece.block)
            break
        except LostMemberError as lost:
            engine.go_alone(lost)
            say(f"{job.run.id}: {engine.place} goes on: other members are lost")
    meter.add(loss=float(loss), frames=frames, report=report)
    return True


def let_in(job: Job, work: Work) -> None:
    """Alone: let new members of the super-learner in, if they are there, to do the next gradient.

    Where that is wanted, wait for them, taking part in mixing, until the run stops.

    Raises:
        LostMemberError: nobody came in time.
    """
    engine, patience = job.engine, job.meeting.timeout.total_seconds()
    deadline = time.monotonic() + patience
    while not engine.over:
        if life := engine.let_in():
            work.welcome(life)
            say(f"{job.run.id}: {engine.place} goes on with new members")
            return
        if job.settings.training.member_death != "wait":
            return
        if time.monotonic() > deadline:
            raise LostMemberError(f"nobody took the places of those lost within {patience:g} s")
        pulse.waits()
        engine.rest()
        if engine.paused and not engine.over:
            save(job)


def evaluate_epochs(job: Job, progress: Progress, passed: int) -> None:
    """Of epochs that have been passed: what is kept of weights, this learner's share of scores."""
    if progress.epoch >= passed:
        return
    place = job.engine.place
    job.kept.passed(range(progress.epoch + 1, passed + 1), job.engine)
    score = evaluate(job.criterion, job.dev_feed.share(rank=place.rank, learners=place.world))
    for epoch in range(progress.epoch + 1, passed + 1):
        progress.evaluated(score, epoch)


def stop_early(job: Job, progress: Progress) -> None:
    """Rank 0: held-out losses say that it is enough."""
    job.enough = True
    progress.board.post(NOTICE, True)  # before anybody can have stopped for it
    job.engine.request_stop()
    tell_of_enough(job, progress)


def tell_of_enough(job: Job, progress: Progress) -> None:
    """A line."""
    patience = progress.patience
    say(
        f"{job.run.id}: no better held-out loss in the {patience.epochs} epochs after epoch "
        f"{patience.best}: training ends"
    )


def save(job: Job) -> None:
    """All learners stand still: write this one's part and go on."""
    job.checkpoints.save(state(job), job.engine)
    job.engine.go_on()


def state(job: Job) -> dict[str, Any]:
    """What a checkpoint holds.

    The data's position and the random numbers follow from the step, or, where learners share
    their work, from the blocks in the record up to here: what is claimed and not done is left.
    """
    engine = job.engine
    more = {"complete": engine.complete, "enough": job.enough}
    return engine.state_dict() | more | job.kept.state()


def resume(job: Job) -> tuple[Saved | None, bool]:
    """Be where the others are, or take up the newest sound checkpoint; it, and if it is the end.

    Raises:
        UserError: the checkpoint lies behind the end: it is not of this run.
    """
    engine, node = job.engine, job.engine.place.node
    if job.meeting.returning:
        engine.come_back()
        turn.taken()
        say(f"{job.run.id}: learner {engine.place.rank} came back at its step {engine.steps}")
        return None, False
    if job.meeting.joining:
        engine.join(job.meeting.timeout.total_seconds())
        say(f"{job.run.id}: learner {engine.place.rank} joined at its step {engine.steps}")
        return None, False
    saved = job.checkpoints.find()
    if saved is None:
        return None, False
    source = saved.source(node)
    found = saved.load(source)
    if source == node:
        engine.load_state_dict(found)
        job.kept.resume(found)
    else:
        engine.take_place(found, source=source, record=saved.records().get(node))
    say(f"{job.run.id}: learner {engine.place.rank} resumed at step {engine.steps}")
    if not shares(job):
        if engine.steps > job.total:
            raise behind_the_end(job, engine.steps)
        if engine.steps == job.total:
            engine.no_more_gradients()
    job.enough = job.settings.training.early_stop > 0 and saved.enough()
    return saved, job.enough or bool(found["complete"])
