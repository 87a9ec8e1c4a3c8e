"""How sure a lattice is of each word of a path."""

from __future__ import annotations

import numpy as np

from hadpsgd.decoding.forward_backward import arc_posteriors, frames_before
from hadpsgd.decoding.lattice import Lattice, Path, Scaling


def confidences(lattice: Lattice, path: Path, scaling: Scaling) -> list[float] | None:
    """Probability of each word of a path, 0 .. 1; None for a lattice of a single path.

    The posteriors of all arcs that say the word are added up, from the middle between it and the
    word before to the middle between it and the word after.
    """
    if len(lattice.arcs) <= lattice.num_states - 1:
        return None
    if not len(path.words):
        return []
    spoken = np.flatnonzero(lattice.arcs["olabel"] > 0)
    posteriors = arc_posteriors(lattice, scaling)[spoken]
    words = lattice.arcs["olabel"][spoken]
    frames = frames_before(lattice)[lattice.sources[spoken]]
    places = path.word_frames.astype(np.float64)
    middles = (places[1:] + places[:-1]) / 2.0
    lows = np.concatenate([[-np.inf], middles])
    highs = np.concatenate([middles, [np.inf]])
    found = []
    for word, low, high in zip(path.words.tolist(), lows, highs, strict=True):
        near = (words == word) & (frames >= low) & (frames < high)
        found.append(float(min(posteriors[near].sum(), 1.0)))
    return found
