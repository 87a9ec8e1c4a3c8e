"""No difference of word error rates without its significance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hadpsgd.config import Config, beside_rows
from hadpsgd.reports.rows import MISSING
from hadpsgd.reports.table import Table
from hadpsgd.scoring import sentences
from hadpsgd.scoring.nist import Sentence
from hadpsgd.scoring.significance_command import compare_rows
from hadpsgd.tracking.results import Result

Tests = dict[str, dict[str, Any]]
"""By test set what `hadpsgd significance` writes: `runs` with intervals, tested `pairs`."""
Scored = Mapping[str, Path]
"""Of a run: folders of scores, by set."""
FILE = "significance.json"
_OF_SEEDS = (
    "A row of several seeds is its runs' mean, its interval Student's t over seeds. Its "
    "differences are of the runs' mean errors in the same speech: interval and p tell of other "
    "speech, the p over seeds (Welch's t-test) of other seeds."
)


def of_config(config: Config, results: Sequence[Result]) -> Tests:
    """Every pair of a config's rows, tested on every test set."""
    scored = {result.name: result.scored_sets for result in results if result.scores}
    folders = {
        row: {name: scored[name] for name in names if name in scored}
        for row, names in _rows(config).items()
    }
    return between(folders, config.tests)


def labels(config: Config, results: Sequence[Result]) -> list[str]:
    """The rows that are scored on a test set: of the others there is nothing to test."""
    scored = {result.name for result in results if set(config.tests) & result.scores.keys()}
    return [row for row, names in _rows(config).items() if scored & set(names)]


def _rows(config: Config) -> dict[str, list[str]]:
    """Rows of the tables and the names of what they hold."""
    rows = {row: [run.id for run in runs] for row, runs in config.training.rows.items()}
    return rows | {row: [row] for row in beside_rows(config)}


def between(rows: Mapping[str, Mapping[str, Scored]], names: Sequence[str]) -> Tests:
    """Every pair of rows, by what their runs are scored on, on the sets that any of them has.

    Raises:
        UserError: runs were scored on other references of the same name.
    """
    tests: Tests = {}
    for name in names:
        scored = {row: _scored(folders, name) for row, folders in rows.items()}
        if any(scored.values()):
            tests[name] = compare_rows({row: runs for row, runs in scored.items() if runs})
    return tests


def _scored(folders: Mapping[str, Scored], name: str) -> dict[str, list[Sentence]]:
    """Of a row, the runs that are scored on a set."""
    files = {run: sets[name] / sentences.FILE for run, sets in folders.items() if name in sets}
    return {run: sentences.read(file) for run, file in files.items() if file.exists()}


def note(tests: Tests) -> str:
    """What the numbers are; names what the bootstrap drew, which may differ from set to set."""
    drawn = {name: test["drawn"] for name, test in tests.items()}
    units = sorted(set(drawn.values()), reverse=True)
    over = units[0]
    if len(units) > 1:
        over = " and ".join(
            f"{unit} ({', '.join(name for name in drawn if drawn[name] == unit)})" for unit in units
        )
    text = (
        f"Intervals are 95 % bootstrap intervals over {over}; p is of the matched-pairs test "
        "(MAPSSWE, two-sided)."
    )
    rows = [row for test in tests.values() for row in test["runs"].values()]
    return f"{text} {_OF_SEEDS}" if any(len(row.get("members", ())) > 1 for row in rows) else text


def table(labels: Sequence[str], tests: Tests) -> Table:
    """Every run's WER minus the first one's, in percent absolute: one column a test set."""
    first, *others = labels
    names = list(tests)
    pairs = {
        (name, pair["second"]): pair
        for name in names
        for pair in tests[name]["pairs"]
        if pair["first"] == first
    }
    rows = [[run, *(difference(pairs.get((name, run))) for name in names)] for run in others]
    heading = f"minus {first}"
    return Table([heading, *names], rows, frozenset({heading}))


def difference(pair: Mapping[str, Any] | None) -> str:
    """Second run minus first: `+0.20 (-0.55 .. +0.95), p 0.412`."""
    if pair is None:
        return MISSING
    low, value, high = (
        0.0 - pair["interval"][1],
        0.0 - pair["difference"],
        0.0 - pair["interval"][0],
    )
    seeds = pair.get("p_seeds")  # null where a row has one run, or all seeds came out alike
    over_seeds = "" if seeds is None else f", over seeds {seeds:.3f}"
    return f"{value:+.2f} ({low:+.2f} .. {high:+.2f}), p {pair['p']:.3f}{over_seeds}"


def leaders(test: Mapping[str, Any], level: float = 0.05) -> set[str]:
    """The best run on a set, and the runs that do not differ from it significantly."""
    rates = {run: row["wer"] for run, row in test["runs"].items()}
    best = min(rates, key=lambda run: rates[run])
    alike = {best}
    for pair in test["pairs"]:
        two = {pair["first"], pair["second"]}
        if best in two and pair["p"] >= level:
            alike |= two
    return alike


def interval(tests: Tests, *, name: str, run: str) -> str:
    """`5.1 .. 7.0`, of a row or of a run in one; nothing where it was not tested."""
    row = of_run(tests.get(name, {}).get("runs", {}), run)
    return f"{row['interval'][0]:.2f} .. {row['interval'][1]:.2f}" if row else ""


def of_run(rows: Mapping[str, Any], run: str) -> Mapping[str, Any] | None:
    """What a set's tests say of a row, or of a run folded under one."""
    folded = [row["members"] for row in rows.values() if "members" in row]
    return next((each[run] for each in [rows, *folded] if run in each), None)


def text(labels: Sequence[str], tests: Tests) -> str:
    """The table with its note; says so where there is nothing to test."""
    if len(labels) < 2 or not tests:
        return "Differences are not tested: fewer than two runs are scored here on one test set.\n"
    return f"{note(tests)}\n\n{table(labels, tests).markdown()}"
