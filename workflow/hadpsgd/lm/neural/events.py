"""What an n-gram and a neural model say of words, and both together; needs no network."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def interpolated(ngram: Floats, neural: Floats, weight: float) -> Floats:
    """Log probabilities under both, in nats, of those under each.

    Args:
        ngram, neural: in nats, of the same words.
        weight: of the neural model, 0 .. 1.
    """
    if weight == 0.0:
        return ngram
    if weight == 1.0:
        return neural
    return np.logaddexp(math.log1p(-weight) + ngram, math.log(weight) + neural)


@dataclass(frozen=True)
class Events:
    """Words and ends of sentences, one after another.

    Args:
        ngram, neural: float64 [events], log probabilities in nats; NaN of a word that the n-gram
            lacks.
        known: bool [events], whether both models know the word itself.
        first: int64 [sentences + 1], where each sentence begins; its end is its last event.
    """

    ngram: Floats
    neural: Floats
    known: NDArray[np.bool_]
    first: NDArray[np.int64]
