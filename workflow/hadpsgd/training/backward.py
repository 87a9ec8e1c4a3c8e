"""A learner's gradient of one minibatch, as it trains or helps another learner to train."""

from __future__ import annotations

import time
from typing import SupportsFloat

from hadpsgd.training import pulse
from hadpsgd.training.data import Example
from hadpsgd.training.job import Job


def backward(
    job: Job, *, step: int, rank: int, example: Example | None = None
) -> tuple[SupportsFloat, int]:
    """Of learner `rank`'s minibatch of a step of the run; its loss, and its frames.

    `example`: the minibatch, if it is read already.
    """
    pulse.works()
    begin = time.monotonic()
    x, y = example or job.feed.example(step=step, rank=rank)
    loss = job.gradients.take(x, y, rank=rank, step=step)
    if job.injection.slows_gradients:
        loss = float(loss)  # a GPU has only begun
    seconds = time.monotonic() - begin
    place = job.engine.place
    time.sleep(job.injection.pause(learner=place.rank, step=job.engine.steps, seconds=seconds))
    return loss, y.numel()
