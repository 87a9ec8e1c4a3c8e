"""All that the reports of a config show, read once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hadpsgd.config import Config
from hadpsgd.reports import rows, significance, stages
from hadpsgd.reports.rows import ResultRow
from hadpsgd.tracking.results import Result, RunResult, read_gmm, read_results
from hadpsgd.tracking.sync import tracked_runs


@dataclass(frozen=True)
class Findings:
    """Of all runs of a config, finished or not."""

    config: Config
    results: Sequence[RunResult]
    gmm: Sequence[Result]
    """The GMM-HMM, where it is decoded."""
    rows: Sequence[ResultRow]
    """The results as rows of the table, those of several seeds folded under their mean."""
    tests: significance.Tests
    """Of the differences between runs."""
    jobs: Sequence[stages.Stage]
    """Time and memory of the stages."""

    @classmethod
    def of(cls, config: Config, unfinished: Collection[str] = ()) -> Findings:
        """Read them; `unfinished` as for `read_result`. UserError where a result is broken."""
        results, gmm = read_results(config, unfinished), read_gmm(config, unfinished)
        tracked = tracked_runs(config)
        of_runs = rows.fold(config, rows.of_results(results, tracked))
        return cls(
            config=config,
            results=results,
            gmm=gmm,
            rows=[*of_runs, *rows.of_gmm(gmm, tracked)],
            tests=significance.of_config(config, [*results, *gmm]),
            jobs=stages.of_config(config),
        )

    @property
    def tested(self) -> list[str]:
        """The rows whose differences are tested."""
        return significance.labels(self.config, [*self.results, *self.gmm])

    @property
    def differences(self) -> str:
        """The tests as text."""
        return significance.text(self.tested, self.tests)
