"""Whether a gradient is finite; if not, whose it is."""

from __future__ import annotations

import math

import torch

from hadpsgd.decentralized.core.engine import NotFiniteError
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.place import Place
from hadpsgd.decentralized.strategies.needs import Reduces


def norm_of(
    learner: Learner, reducer: Reduces, place: Place, *, skip_not_finite: bool
) -> tuple[float, bool]:
    """The gradient's norm; whether it must be skipped.

    Raises:
        NotFiniteError: it must not be skipped; names the learners and the step.
    """
    gradient = learner.gradient[learner.flat.learnt]
    norm = float(torch.linalg.vector_norm(gradient))
    if math.isfinite(norm):
        return norm, False
    shared = place.rank // reducer.group.size * reducer.group.size
    culprits = [shared + member if reducer.active else place.rank for member in reducer.culprits()]
    names = ", ".join(map(str, culprits)) or "unknown"
    if not skip_not_finite:
        raise NotFiniteError(f"gradient of learner {names} is not finite at step {learner.steps}")
    return norm, True
