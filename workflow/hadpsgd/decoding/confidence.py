"""How sure a lattice is of each word of a path."""

from __future__ import annotations

import numpy as np

from hadpsgd.decoding.forward_backward import arc_posteriors, frames_before
from hadpsgd.decoding.lattice import Lattice, Path, Scaling


def confidences(lattice: Lattice, path: Path, scaling: Scaling) -> list[float] | None:
    """Probability of each word of a path, 0 .. 1; None for a search's best path alone.

    The posteriors of all arcs that say the word are added up, from the middle between it and the
    word before to the middle between it and the word after.
    """
    if lattice.ids is None and len(lattice.arcs) <= lattice.num_states - 1:
        return None
    if not len(path.words):
        return []
    spoken = np.flatnonzero(lattice.arcs["olabel"] > 0)
    frames = frames_before(lattice)[lattice.sources[spoken]]
    order = frames.argsort(kind="stable")
    posteriors = arc_posteriors(lattice, scaling)[spoken][order]
    words, frames = lattice.arcs["olabel"][spoken][order], frames[order]
    places = path.word_frames.astype(np.float64)
    middles = (places[1:] + places[:-1]) / 2.0
    lows = [0, *frames.searchsorted(middles).tolist()]
    highs = [
        *frames.searchsorted(middles, side="right").tolist(),
        len(frames),
    ]  # words at one frame
    found = []
    for word, low, high in zip(path.words.tolist(), lows, highs, strict=True):
        near = words[low:high] == word
        found.append(float(min(posteriors[low:high][near].sum(), 1.0)))
    return found
