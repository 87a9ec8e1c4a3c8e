"""Runs that differ in their seed alone: their mean, and whether two such rows differ.

The intervals here are over seeds: what other seeds would give on the same test set. Those of
`significance` are over speakers or sentences: what these models would do on other speech.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hadpsgd.scoring.significance import Interval


def mean_over_seeds(rates: Sequence[float], *, level: float = 0.95) -> Interval:
    """Mean and its interval by Student's t with n - 1 degrees of freedom.

    Of one member nothing is known about others: its interval is empty (NaN).
    """
    mean = float(np.mean(rates))
    if len(rates) < 2:
        return Interval(value=mean, low=float("nan"), high=float("nan"))
    from scipy import stats  # half a second: only where there are seeds

    spread = float(np.std(rates, ddof=1))
    half = float(stats.t.ppf((1 + level) / 2, len(rates) - 1)) * spread / len(rates) ** 0.5
    return Interval(value=mean, low=mean - half, high=mean + half)


def p_over_seeds(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Welch's t-test of two rows' error rates, two-sided.

    None where one has a single member, or neither has any spread: nothing is known about how seeds
    differ.
    """
    if min(len(first), len(second)) < 2 or max(map(np.ptp, (first, second))) == 0.0:
        return None
    from scipy import stats

    of_each = [(np.mean(row), np.std(row, ddof=1), len(row)) for row in (first, second)]
    return float(stats.ttest_ind_from_stats(*of_each[0], *of_each[1], equal_var=False).pvalue)
