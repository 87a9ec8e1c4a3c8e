"""What happened to a learner's weights: the record from which a run can be evaluated again.

A learner's weights have a version: the number of its events so far (0: the initial weights). Each
event makes the next version, and names by version what it was made of. So every learner's record
stands alone and in its own order; no global clock is needed, and the records of all learners
together determine every weight. With super-learners, "learner" is the super-learner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Update:
    """Gradient number `step` of this learner, taken at its version `read`, applied now.

    Its staleness is the version it is applied to, less `read`.
    """

    step: int
    """Gradients of this learner before it: names its minibatch."""
    read: int
    """Version of the learner's own weights at which the gradient was taken."""
    rate: float
    """Learning rate a."""


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Join:
    """The learner starts (again) from version `version` of `source`, its momentum at zero."""

    source: int
    version: int


Event = Update | Mix | Join
Record = Mapping[int, Sequence[Event]]
"""Learner -> its events; event number n makes version n + 1."""
