"""The loop that all stages share: realign, accumulate, update, mix up."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from hadpsgd.errors import UserError
from hadpsgd.gmm.checkpoint import Checkpoint
from hadpsgd.gmm.em import Outcome, Passes, Search
from hadpsgd.gmm.model import Model
from hadpsgd.gmm.statistics import Statistics
from hadpsgd.gmm.update import Growth, update, update_transitions
from hadpsgd.progress import time_left


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Iterations count from 1, as in Kaldi's scripts, whose last is `iterations` - 1: that many
    models there are, with the first. Gaussians grow from `start` after iteration 1 to `gaussians`
    after iteration `grow_until`.

    realign: iterations before which utterances are aligned anew; prior: of variances;
    first_beam: the beam at most of iteration 1.
    """

    name: str
    iterations: int
    realign: frozenset[int]
    grow_until: int
    start: int
    gaussians: int
    power: float
    seed: int
    prior: float
    first_beam: float = math.inf


class State(NamedTuple):
    """What a training carries from one iteration to the next."""

    passes: Passes
    model: Model


Hook = Callable[[int, State], State]


def train(
    schedule: Schedule,
    state: State,
    search: Search,
    checkpoint: Checkpoint,
    hook: Hook = lambda _, state: state,
) -> State:
    """Run a schedule; `hook` may change model and features in front of an iteration's pass.

    Raises:
        UserError: no utterance aligns.
    """
    random = np.random.default_rng(schedule.seed)
    start = schedule.start
    step = (schedule.gaussians - start) / max(schedule.grow_until, 1)
    done, state = checkpoint.begin(schedule, search, state, random)
    if done:
        print(f"{schedule.name}: goes on after iteration {done}", file=sys.stderr, flush=True)
    began = time.monotonic()
    for iteration in range(done + 1, schedule.iterations):
        outcome = None
        if iteration in schedule.realign:
            beam = min(search.beam, schedule.first_beam) if iteration == 1 else search.beam
            outcome = state.passes.align(state.model, replace(search, beam=beam))
            check_some(outcome, schedule.name)
            checkpoint.realigned()
        state = hook(iteration, state)
        sums = state.passes.accumulate(state.model)
        grown = start + int(step * min(iteration - 1, schedule.grow_until))
        growth = Growth(gaussians=max(grown, start), power=schedule.power, prior=schedule.prior)
        state = State(state.passes, maximise(state.model, sums, growth, random))
        checkpoint.save(iteration, state, random)
        share = (iteration - done) / (schedule.iterations - 1 - done)
        left = time_left(share, seconds=time.monotonic() - began)
        _report(schedule, iteration, sums, state.model, outcome, left)
    return state


def maximise(model: Model, sums: Statistics, growth: Growth, random: np.random.Generator) -> Model:
    """The updated model."""
    return Model(
        update_transitions(model.transitions, sums.ids),
        update(model.mixtures, sums, growth, random),
    )


def check_some(outcome: Outcome, name: str) -> None:
    """Stop where nothing aligns.

    Raises:
        UserError: all utterances failed.
    """
    if not outcome.frames:
        utterance, why = next(iter(outcome.failed.items()), ("", "there is none"))
        raise UserError(f"no utterance can be aligned (the first one: {why})",
                        where=f"{name}, utterance {utterance}")  # fmt: skip


def _report(
    schedule: Schedule,
    iteration: int,
    sums: Statistics,
    model: Model,
    outcome: Outcome | None,
    left: str,
) -> None:
    line = (
        f"{schedule.name}: iteration {iteration}/{schedule.iterations - 1}, log-likelihood a frame "
        f"{sums.likelihood / max(sums.frames, 1):.3f}, {len(model.mixtures.weights)} Gaussians"
    )
    if outcome is not None:
        line += f"; realigned, {len(outcome.needed)} retried, {len(outcome.failed)} failed"
    print(f"{line}; {left}", file=sys.stderr, flush=True)
