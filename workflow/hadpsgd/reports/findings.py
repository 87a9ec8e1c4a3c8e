"""All that the reports of a config show, read once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hadpsgd.config import Config
from hadpsgd.reports import rows, significance, stages
from hadpsgd.reports.rows import ResultRow
from hadpsgd.scoring.ends import ends
from hadpsgd.tracking.beside import Beside, read_beside
from hadpsgd.tracking.results import RunResult, read_results
from hadpsgd.tracking.sync import tracked_runs


@dataclass(frozen=True)
class Findings:
    """Of all runs of a config, finished or not."""

    config: Config
    results: Sequence[RunResult]
    beside: Sequence[Beside]
    """What is decoded beside the runs."""
    rows: Sequence[ResultRow]
    """The results as rows of the table, those of several seeds folded under their mean."""
    tests: significance.Tests
    """Of the differences between runs."""
    jobs: Sequence[stages.Stage]
    """Time and memory of the stages."""

    @classmethod
    def of(cls, config: Config, unfinished: Collection[str] = ()) -> Findings:
        """Read them; `unfinished` as for `read_result`. UserError where a result is broken."""
        results, beside = read_results(config, unfinished), read_beside(config, unfinished)
        tracked = tracked_runs(config)
        of_runs = rows.fold(config, rows.of_results(results, tracked))
        return cls(
            config=config,
            results=results,
            beside=beside,
            rows=[*of_runs, *rows.of_beside(beside, tracked)],
            tests=significance.of_config(config, [*results, *beside]),
            jobs=stages.of_config(config),
        )

    @property
    def tested(self) -> list[str]:
        """The rows whose differences are tested."""
        return significance.labels(self.config, [*self.results, *self.beside])

    @property
    def ends(self) -> list[str]:
        """A sentence for every value with the fewest errors beside which one side was tried."""
        labels: dict[str, list[str]] = {}
        for result in [*self.results, *self.beside]:
            for end in ends(result.tuned):
                labels.setdefault(end, []).append(result.name)
        return [
            f"{', '.join(names)}: the fewest errors on dev are at {end}"
            for end, names in labels.items()
        ]

    @property
    def differences(self) -> str:
        """The tests as text."""
        return significance.text(self.tested, self.tests)
