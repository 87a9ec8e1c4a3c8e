"""What a learner does when its super-learner has lost a member that is not the first one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hadpsgd.decentralized.elastic.helpers import Helper, Word, may_help
from hadpsgd.decentralized.strategies.mixing_engine import DecentralizedEngine
from hadpsgd.training import pulse
from hadpsgd.training.backward import backward
from hadpsgd.training.gradients import Gradients
from hadpsgd.training.interrupt import Interrupt
from hadpsgd.training.job import Job, LossOf, engine_of
from hadpsgd.training.metrics import say


def help_first(job: Job, lost: Exception) -> Word:
    """Help the first member of the super-learner until it has no use for this one.

    If that is because new members have come, the job has a new engine, which is to come back.

    Raises:
        Exception: `lost`; this learner cannot help.
        LostMemberError: the first member is lost, too, or lets this one go.
        TooLateError: the run is over.
    """
    engine = job.engine
    wanted = job.settings.training.member_death != "leave"
    if not (wanted and may_help(engine.place) and isinstance(engine, DecentralizedEngine)):
        raise lost

    def take(member: int, of: Sequence[int]) -> tuple[float, int]:
        step, first = of
        told = backward(job, step=step, rank=first + member)
        pulse.waits()
        return told

    pulse.waits()
    with Interrupt(lambda: None):  # the first member hears of it, too
        helper = Helper(job.meeting)
        say(f"{job.run.id}: {engine.place} helps the first one: others are lost")
        word = helper.serve(engine.learner, take)
    if word.life:
        job.meeting = replace(job.meeting, life=word.life, returning=True)
        job.engine = engine_of(
            job.settings,
            LossOf(job.model),
            job.meeting,
            job.steps_per_epoch,
            job.checkpoints.folder,
            by_host=False,
        )
        arithmetic = job.gradients.arithmetic
        job.gradients = Gradients(
            job.engine.module, job.settings, job.device, arithmetic=arithmetic
        )
    return word
