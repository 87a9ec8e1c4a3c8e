"""Which of the settings that were tried on the development set is taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from hadpsgd.scoring.align import Counts
    from hadpsgd.scoring.tune import Setting

CHOSEN = ("lm_weight", "word_penalty", "neural_weight")
"""What a setting is chosen by."""
SHARE = 0.5
"""Of the square root of the fewest errors, their standard error as a Poisson variable: so much more
is no difference. Two settings that are near each other differ by chance by 0.3 to 0.6 of it, for
they hear the same words (docs/benchmarks/small-data.md)."""
RULE = f"middle within {SHARE:g} standard errors"
"""What makes error rates on dev comparable beside the settings that are tried."""


def choose(settings: Sequence[Setting], counts: Sequence[Counts]) -> int:
    """The middle of the settings whose errors differ from the fewest by chance.

    What has the fewest errors on a small set is often at the rim of many that are as good. The
    middle is the setting nearest to the mean of their places among the values that are tried, of
    equals the one with fewer errors, then the one with smaller values. On speakers that were left
    out of the choice it makes fewer errors. The idea is that of Breiman's 1-SE rule (CART, 1984).
    """
    values = np.array([[getattr(setting, name) for name in CHOSEN] for setting in settings])
    places = np.stack([_places(column) for column in values.T], axis=1)
    errors = np.array([count.errors for count in counts])
    near = alike(counts)
    far = np.square(places[near] - places[near].mean(axis=0)).sum(axis=1)
    order = np.lexsort((*values[near].T[::-1], errors[near], far.round(9)))
    return int(near[order[0]])


def alike(counts: Sequence[Counts]) -> npt.NDArray[np.int64]:
    """Of the settings those whose errors differ from the fewest by chance, by number."""
    errors = np.array([count.errors for count in counts])
    return np.flatnonzero(errors <= errors.min() + SHARE * np.sqrt(errors.min()))


def _places(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Of each value its number among all different ones by size, as a share of them (n)."""
    different, numbers = np.unique(values, return_inverse=True)
    return numbers / len(different)
