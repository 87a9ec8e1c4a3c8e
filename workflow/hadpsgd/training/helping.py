"""What a learner does when its super-learner has lost a member: it helps the first one.

If the first one is lost, the launcher says who takes its place (`orders`). That one builds an
engine as the first member, and joins the others from a neighbour's weights, as any newcomer; those
that are left help it. So the super-learner goes on without a new process.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hadpsgd.decentralized.core.engine import LostMemberError
from hadpsgd.decentralized.elastic.helpers import Helper, Word, answers, lets_in, may_help
from hadpsgd.decentralized.elastic.membership import OVER, TooLateError
from hadpsgd.decentralized.strategies.mixing_engine import DecentralizedEngine
from hadpsgd.training import pulse
from hadpsgd.training.averaging import Kept
from hadpsgd.training.backward import backward
from hadpsgd.training.checkpoints import Checkpoints
from hadpsgd.training.criterion import criterion_of
from hadpsgd.training.engines import engine_of
from hadpsgd.training.gradients import Gradients
from hadpsgd.training.interrupt import Interrupt
from hadpsgd.training.job import Job
from hadpsgd.training.metrics import say
from hadpsgd.training.orders import Order, orders

LOOK_SECONDS = 0.05
LIVES_SECONDS = 3.0
"""A first member that accepts connections for so long, and of whose end nobody has heard, lives."""


def go_on(job: Job, lost: Exception) -> Word:
    """Help the first member of the super-learner until it has no use for this one, or become it.

    The job has a new engine then: to come back, if new members have come, or to join.

    Raises:
        Exception: `lost`; this learner cannot help, or the first one lets it go.
        TooLateError: the run is over.
    """
    engine = job.engine
    wanted = job.settings.training.member_death != "leave"
    if not (wanted and isinstance(engine, DecentralizedEngine) and engine.place.member):
        raise lost
    pulse.waits()
    with Interrupt(lambda: None):  # the first member hears of it, too
        order = orders().last()
        while order is None or order.rank == engine.place.rank:
            if order is not None:
                job.meeting = replace(job.meeting, life=order.life)
                order = _until_let_in(job, lost)
                if order is not None:
                    continue
            if may_help(engine.place):
                try:
                    return _help(job, engine)
                except LostMemberError as error:
                    lost = error
            order = _told(job, lost)
    _become_first(job, order)
    return Word(life=order.life)


def _until_let_in(job: Job, lost: Exception) -> Order | None:
    """Wait for the new first member; what the launcher says instead, if that one is lost, too.

    Raises:
        Exception: `lost`; it does not come.
        TooLateError: the run is over.
    """
    deadline = time.monotonic() + job.meeting.timeout.total_seconds()
    while not lets_in(job.meeting):
        if (order := orders().last()) is not None:
            return order
        _check_time(job)
        if time.monotonic() > deadline:
            raise lost
        time.sleep(LOOK_SECONDS)
    return None


def _told(job: Job, lost: Exception) -> Order:
    """What the launcher says of the first member's place.

    Raises:
        Exception: `lost`; nobody says anything, or the first member lives.
        TooLateError: the run is over.
    """
    begin = listened = time.monotonic()
    patience = job.meeting.timeout.total_seconds()
    while (order := orders().last()) is None:
        now = time.monotonic()
        if not answers(job.meeting):
            listened = now
        _check_time(job)
        if orders().link is None or now > listened + LIVES_SECONDS or now > begin + patience:
            raise lost
        time.sleep(LOOK_SECONDS)
    return order


def _check_time(job: Job) -> None:
    if job.meeting.prefixed("mixing").check([OVER]):
        raise TooLateError(f"the run ended without learner {job.meeting.place.rank}")


def _help(job: Job, engine: DecentralizedEngine) -> Word:
    def take(member: int, of: Sequence[int]) -> tuple[float, int]:
        step, first = of
        loss, frames = backward(job, step=step, rank=first + member)
        pulse.waits()
        return float(loss), frames

    helper = Helper(job.meeting, lambda: orders().waiting)
    say(f"{job.run.id}: {engine.place} helps the first one: others are lost")
    word = helper.serve(engine.learner, take)
    if word.life:
        job.meeting = replace(job.meeting, life=word.life, returning=True)
        _build_engine(job)
    return word


def _become_first(job: Job, order: Order) -> None:
    """All that goes by the rank is made anew."""
    place = replace(job.meeting.place, rank=order.rank)
    say(f"{job.run.id}: learner {job.meeting.place.rank} takes the place of learner {place.rank}")
    if order.log:
        with Path(order.log).open("ab") as log:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
                os.dup2(log.fileno(), stream.fileno())
    job.meeting = replace(job.meeting, place=place, life=order.life, returning=False, alone=True)
    job.feed.rank = place.rank
    folder, training = job.checkpoints.folder, job.settings.training
    job.checkpoints = Checkpoints(folder, job.meeting, job.checkpoints.keep)
    job.kept = Kept(folder, place.node, training, writes=True)
    _build_engine(job)
    job.moved(place.rank)


def _build_engine(job: Job) -> None:
    module, folder = criterion_of(job.model, job.settings, job.train), job.checkpoints.folder
    job.engine = engine_of(
        job.settings, module, job.meeting, job.steps_per_epoch, folder, by_host=False
    )
    arithmetic = job.gradients.arithmetic
    job.gradients = Gradients(job.engine.module, job.settings, job.device, arithmetic=arithmetic)
