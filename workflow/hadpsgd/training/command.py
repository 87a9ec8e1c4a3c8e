"""`hadpsgd train`: one rank of a training run; torchrun starts as many as the run has learners."""

from __future__ import annotations

import argparse
import json
import time
from contextlib import ExitStack
from pathlib import Path

from hadpsgd.config import load, run_of, settings_of
from hadpsgd.decentralized.core.engine import NotFiniteError
from hadpsgd.decentralized.elastic.membership import TooLateError
from hadpsgd.decentralized.network.rendezvous import wait_for_keys
from hadpsgd.errors import UserError
from hadpsgd.tracking import follower
from hadpsgd.tracking.follower import Session
from hadpsgd.tracking.results import SUMMARY
from hadpsgd.training import divergence, final, memory, pulse, turn
from hadpsgd.training.job import Job, assemble, identity
from hadpsgd.training.loop import End, train
from hadpsgd.training.metrics import say
from hadpsgd.training.virtual import train as train_virtually
from hadpsgd.training.virtual import virtual_time


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", type=Path, required=True, help="YAML config")
    # torchrun takes `--run` for a part of its own `--run-path`
    parser.add_argument("--run-id", "--run", dest="run", required=True, help="its id or key")
    parser.add_argument("--egs", type=Path, required=True, help="training examples")
    parser.add_argument(
        "--initial",
        type=Path,
        metavar="FINAL.PT",
        help="model that a stage of training.stages goes on from",
    )
    parser.add_argument("--dev-egs", type=Path, required=True, help="held-out examples")
    parser.add_argument("--out", type=Path, required=True, help="folder for final.pt and metrics")


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


def done(out: Path, hash_: str, *, diverged: bool = False) -> bool:
    """Whether a folder holds the results of the run with this identity.

    `diverged`: that it diverged is a result, too.
    """
    summary = out / SUMMARY
    if not (summary.is_file() and (out / "final.pt").is_file()):
        return False
    found = json.loads(summary.read_text(encoding="utf-8"))
    return found.get("identity") == hash_ and (diverged or "diverged" not in found)


def _leave_together(job: Job) -> None:
    """Rank 0 may host the store that the others still talk to: it leaves last."""
    if job.meeting.store is None:
        return
    store, place = job.meeting.prefixed("left"), job.meeting.place
    store.set(str(place.rank), "")
    if job.meeting.hosts_store:
        everybody = [str(rank) for rank in range(place.world)]
        wait_for_keys(store, everybody, job.meeting.timeout.total_seconds())
