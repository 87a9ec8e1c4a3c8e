"""How well an utterance's frames fit the states that they are aligned to, beside other states.

A likelihood alone says more of speaker and noise than of the words: other states are as unlikely
then, so the log-posterior of the aligned states does not change with it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hadpsgd.gmm.diag_gmm import Array, Mixtures
from hadpsgd.gmm.likelihood import log_likelihoods

FRAMES = 100
"""Of an utterance, at most, evenly over it: all frames tell no more
(docs/benchmarks/small-data.md#transcripts-that-do-not-fit)."""
PDFS = 500
"""Others that are compared with, at most, evenly over the tree, which lies phone by phone."""


def some(number: int, *, most: int) -> NDArray[np.int64]:
    """At most `most` of the integers below `number`, evenly over them, in order."""
    return np.unique(np.linspace(0, number - 1, min(number, most)).astype(np.int64))


def normaliser(scores: Array) -> Array:
    """Logarithm of the sum of the likelihoods: [frames].

    scores: log-likelihoods [frames, pdfs].
    """
    best = scores.max(axis=1)
    total: Array = best + np.log(np.exp(scores - best[:, None]).sum(axis=1))
    return total


def fit(mixtures: Mixtures, features: Array, pdfs: NDArray[np.integer]) -> float:
    """Mean log-posterior of the aligned pdfs, all pdfs as likely before.

    Args:
        mixtures: of the model.
        features: float32 [frames, dim], frames at least 1.
        pdfs: the aligned pdf-ids [frames].
    """
    frames = some(len(pdfs), most=FRAMES)
    aligned = np.asarray(pdfs)[frames]
    used = np.union1d(some(mixtures.num_pdfs, most=PDFS), aligned)
    scores = log_likelihoods(mixtures, features[frames], used)
    own = scores[np.arange(len(frames)), np.searchsorted(used, aligned)]
    return float(np.mean(own - normaliser(scores)))
