"""What happened to a learner's weights: the record from which a run can be evaluated again.

A learner's weights have a version: the number of its events so far (0: the initial weights). Each
event makes the next version, and names by version what it was made of. So every learner's record
stands alone and in its own order; no global clock is needed, and the records of all learners
together determine every weight. With super-learners, "learner" is the super-learner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """Gradient number `step` of this learner, taken at its version `read`, applied now.

    Its staleness is the version it is applied to, less `read`.
    """

    step: int
    """Gradients of this learner before it: names its minibatch, if it has a share of its own."""
    read: int
    """Version of the learner's own weights at which the gradient was taken."""
    rate: float
    """Learning rate a; 0: the gradient was left out, of the velocity too."""
    block: int | None = None
    """Which block of the work that all share is its minibatch (`work`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Round `round`: w <- w + sum_j weight_j * (w_j[version_j] - w[own]) over its partners.

    If the weights are still at version `own`, this is the column of W T. If gradients came in
    between, they are kept whole, and so is the mean over the learners.
    """

    round: int
    own: int
    """Version of this learner's weights that it sent."""
    takes: tuple[tuple[int, float, int], ...]
    """(partner, weight, version of the partner's weights received), without itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """The learner starts (again) from version `version` of `source`, its momentum at zero."""

    source: int
    version: int


Event = Update | Mix | Join
Record = Mapping[int, Sequence[Event]]
"""Learner -> its events; event number n makes version n + 1."""


def staleness(events: Sequence[Event]) -> list[int]:
    """Of each gradient, the versions made between its reading and its application."""
    return [n - event.read for n, event in enumerate(events) if isinstance(event, Update)]


def ledger_faults(record: Record) -> list[str]:
    """Gradients lost, applied twice or out of order, versions read before they existed, blocks of
    the shared work done twice.

    A learner's steps must be 0, 1, 2, ... over its whole life: a minibatch names a gradient.
    """
    faults = []
    for learner, events in record.items():
        steps = [event.step for event in events if isinstance(event, Update)]
        if steps != list(range(len(steps))):
            lost = sorted(set(range(max(steps, default=-1) + 1)) - set(steps))
            twice = sorted({step for step in steps if steps.count(step) > 1})
            faults.append(
                f"learner {learner}: gradients lost {lost}, applied twice {twice}"
                if lost or twice
                else f"learner {learner}: gradients out of order"
            )
        for version, event in enumerate(events):
            read = {Update: "read", Mix: "own"}.get(type(event))
            if read and not 0 <= getattr(event, read) <= version:
                faults.append(f"learner {learner}: version {version} is made of a later one")
    blocks = Counter(block for events in record.values() for block in blocks_of(events))
    if again := sorted(block for block, times in blocks.items() if times > 1):
        faults.append(f"blocks of the shared work done twice: {again}")
    return faults


def blocks_of(events: Iterable[object]) -> list[int]:
    """The blocks of the shared work that a learner did, in its order."""
    updates = (event for event in events if isinstance(event, Update))
    return [event.block for event in updates if event.block is not None]
