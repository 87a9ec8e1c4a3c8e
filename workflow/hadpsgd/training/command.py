"""`hadpsgd train`: one rank of a training run; torchrun starts as many as the run has learners."""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack

from hadpsgd.config import load, run_of, settings_of
from hadpsgd.decentralized.core.engine import NotFiniteError
from hadpsgd.decentralized.elastic.membership import TooLateError
from hadpsgd.decentralized.network.rendezvous import wait_for_keys
from hadpsgd.errors import UserError
from hadpsgd.tracking import follower
from hadpsgd.tracking.follower import Session
from hadpsgd.training import divergence, final, memory, pulse, turn
from hadpsgd.training.arguments import add_training
from hadpsgd.training.end import End
from hadpsgd.training.identity import done, identity
from hadpsgd.training.job import Job, assemble
from hadpsgd.training.loop import train
from hadpsgd.training.metrics import say
from hadpsgd.training.virtual import train as train_virtually
from hadpsgd.training.virtual import virtual_time


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_training(parser)


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say; 75 asks to be run again (requeued)."""
    config = load(args.config)
    run_id = run_of(config, args.run).id
    if done(args.out, identity(config, run_id, args.egs, initial=args.initial)):
        say(f"{args.out / 'final.pt'} is there, of the same config and examples: nothing to do")
        return End.DONE
    pulse.begin()
    turn.wait()
    if settings_of(config, run_id).training.precision == "bf16":
        memory.keep()
    try:
        job = assemble(
            config,
            run_id,
            egs=args.egs,
            dev_egs=args.dev_egs,
            out=args.out,
            initial=args.initial,
        )
    except TooLateError as error:
        say(f"{run_id}: {error}")
        return End.DONE
    args.out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as tracked:

        def track(rank: int) -> Session:
            return tracked.enter_context(
                follower.start(
                    config,
                    args.config,
                    run_id,
                    checkpoints=job.checkpoints.folder,
                    metrics=args.out / "metrics.jsonl",
                    rank=rank,
                )
            )

        session = track(job.meeting.place.rank)

        def moved(rank: int) -> None:
            nonlocal session
            tracked.close()
            session = track(rank)

        job.moved = moved
        end = _train(job)
        if end is End.REQUEUE:
            session.interrupted()
    _leave_together(job)
    return end


def _train(job: Job) -> End:
    begin = time.monotonic()
    try:
        end = train_virtually(job) if job.run.simulated else train(job)
    except TooLateError as error:
        say(f"{job.run.id}: {error}")
        return End.DONE
    except NotFiniteError as error:
        fix = "Lower the learning rate, set training.clip_norm, or training.not_finite to skip"
        raise _diverged(job, str(error), fix) from None
    if not job.engine.leads:
        return end
    if end is End.DONE:
        measured = final.measure(job)
        if why := divergence.verdict(loss=measured["heldout_loss"], num_pdfs=job.train.num_pdfs):
            raise _diverged(job, why, "Lower the learning rate, or train longer")
        final.write(job, time.monotonic() - begin, measured | virtual_time(job))
        say(f"{job.run.id}: {job.out / 'final.pt'}")
    else:
        say(f"{job.run.id}: stopped at step {job.engine.steps}; run it again, it resumes")
    return end


def _diverged(job: Job, why: str, fix: str) -> UserError:
    """Leave a note for who started the ranks, and give the line for the user."""
    divergence.note(job.out, job.identity, job.engine.steps, why)
    return UserError(why, where=job.run.id, fix=fix)


def _leave_together(job: Job) -> None:
    """Rank 0 may host the store that the others still talk to: it leaves last."""
    if job.meeting.store is None:
        return
    store, place = job.meeting.prefixed("left"), job.meeting.place
    store.set(str(place.rank), "")
    if job.meeting.hosts_store:
        everybody = [str(rank) for rank in range(place.world)]
        wait_for_keys(store, everybody, job.meeting.timeout.total_seconds())
