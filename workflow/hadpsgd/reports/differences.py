"""In which settings runs differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hadpsgd.reports.rows import MISSING
from hadpsgd.reports.table import Table


def differing(settings: Mapping[str, Mapping[str, str]]) -> dict[str, list[str]]:
    """Settings that are not the same in all runs: name → value in each run, in order.

    Args:
        settings: of each run, by its label, all settings by flat name.
    """
    names = {name for values in settings.values() for name in values}
    rows = {
        name: [values.get(name, MISSING) for values in settings.values()] for name in sorted(names)
    }
    return {name: values for name, values in rows.items() if len(set(values)) > 1}


def table(labels: Sequence[str], rows: Mapping[str, Sequence[str]], heading: str) -> Table:
    """One row a name, one column a run."""
    lines = [[name, *values] for name, values in rows.items()]
    return Table([heading, *labels], lines, frozenset({heading}))
