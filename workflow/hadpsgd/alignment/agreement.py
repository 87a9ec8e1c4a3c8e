"""How much two alignments of a data set agree."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

Item = tuple[str, NDArray[np.int32]]


def agreement(ones: Iterable[Item], others: Iterable[Item], pdf: NDArray[np.int32]) -> float | None:
    """Share of the frames with the same pdf-id, over utterances that both have; None without any.

    Both stream side by side: in memory are the utterances that one has and the other has not had
    yet, few where both are in the order of the data. pdf: [ids + 1], that of each transition-id.
    """
    waiting: tuple[dict[str, NDArray[np.int32]], ...] = ({}, {})
    same = total = 0
    for pair in zip_longest(ones, others):
        for side, item in enumerate(pair):
            if item is None:
                continue
            name, ids = item
            other = waiting[1 - side].pop(name, None)
            if other is None:
                waiting[side][name] = pdf[ids]
                continue
            frames = min(len(ids), len(other))
            same += int((pdf[ids[:frames]] == other[:frames]).sum())
            total += frames
    return same / total if total else None
