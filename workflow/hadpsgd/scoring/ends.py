"""Chosen weights and penalties that are the last ones tried: better ones may lie beyond."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KEYS = {"lm_weight": "scoring.lm_weights", "word_penalty": "scoring.word_penalties"}
"""The config's key of what is tried, by its name in tuned.json."""


def ends(tuned: Mapping[str, Any]) -> list[str]:
    """Which of the chosen values lie at an end of those tried.

    Args:
        tuned: content of tuned.json; `tried` has a row for all that was tried.

    Returns:
        `scoring.lm_weights 20`, and others; a key of one value alone has no ends.
    """
    found = []
    for name, key in KEYS.items():
        values = {row[name] for row in tuned.get("tried", []) if name in row}
        if len(values) > 1 and tuned.get(name) in (min(values), max(values)):
            found.append(f"{key} {tuned[name]:g}")
    return found
