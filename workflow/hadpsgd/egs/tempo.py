"""An utterance at another tempo: features stretched in time, labels with them.

For small corpora: speech at 0.9 and 1.1 of its tempo beside the original, made of features, without
the change of pitch of audio at another speed (`hadpsgd.corpus.perturb`). So it serves imported
features too, which have no audio.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def at_tempo(
    features: NDArray[np.float32], labels: NDArray[np.int32], tempo: float
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Features [round(frames / tempo), dim] and labels; a tempo above 1 is faster, so shorter.

    Features are interpolated linearly between frames; a label is that of the nearest frame.
    """
    if tempo == 1.0:
        return features, labels
    frames = max(1, round(len(labels) / tempo))
    # frame centres keep their share of the utterance
    places = np.clip((np.arange(frames) + 0.5) * len(labels) / frames - 0.5, 0, len(labels) - 1)
    below = np.minimum(places.astype(np.int64), max(len(labels) - 2, 0))
    above = np.minimum(below + 1, len(labels) - 1)
    share = (places - below).astype(np.float32)[:, None]
    stretched = features[below] * (1 - share) + features[above] * share
    return stretched, labels[np.rint(places).astype(np.int64)]
