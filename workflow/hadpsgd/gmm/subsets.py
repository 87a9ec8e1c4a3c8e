"""Which utterances the first stages train on, where not on all (Kaldi's subset_data_dir.sh)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hadpsgd.gmm.workspace import Workspace


def chosen(space: Workspace, *, shortest: int = 0, utterances: int = 0) -> NDArray[np.int64] | None:
    """Numbers of utterances, rising; None for all.

    Args:
        space: of all.
        shortest: so many of the shortest alone; 0, or no fewer than there are: any.
        utterances: so many of these, evenly spaced in the order of the data; 0: all of them.
    """
    found = np.arange(len(space))
    if 0 < shortest < len(found):
        found = np.sort(np.argsort(np.diff(space.offsets), kind="stable")[:shortest])
    if 0 < utterances < len(found):
        found = found[np.arange(utterances) * len(found) // utterances]
    return found if len(found) < len(space) else None
