"""Where the fewest errors are at the end of what is tried: better values may lie beyond."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

KEYS = {"lm_weight": "scoring.lm_weights", "word_penalty": "scoring.word_penalties"}
"""The config's key of what is tried, by its name in tuned.json."""
_ENDS: Mapping[Callable[[set[float]], float], str] = {
    min: "the smallest one tried: try smaller ones",
    max: "the largest one tried: try larger ones",
}


def ends(tuned: Mapping[str, Any]) -> list[str]:
    """At which end of what was tried all settings with the fewest errors lie.

    Args:
        tuned: content of tuned.json; `tried` has a row for all that was tried.

    Returns:
        `scoring.lm_weights 20, the largest one tried: try larger ones`, and others; a key of one
        value alone has no ends.
    """
    tried = tuned.get("tried", [])
    least = min((row["errors"] for row in tried), default=0)
    found = []
    for name, key in KEYS.items():
        values = {row[name] for row in tried if name in row}
        best = {row[name] for row in tried if name in row and row["errors"] == least}
        for end, more in _ENDS.items():
            if len(values) > 1 and best == {end(values)}:
                found.append(f"{key} {end(values):g}, {more}")
    return found
