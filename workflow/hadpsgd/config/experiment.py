"""The section `training`: settings that all runs share, and the runs, one by one or by grids."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

from pydantic import Field, model_validator

from hadpsgd.config.changes import changed
from hadpsgd.config.grids import PARTS, Grid, Part, runs_of
from hadpsgd.config.settings import Settings
from hadpsgd.config.stage import Stage, StageRun
from hadpsgd.config.training import Run, Seeds, check_seeds

_ADDED = ("decode", "probe")
"""Of a run: what it may be asked for besides its weights."""


class Training(Settings):
    """Optimisation, of all runs and of each."""

    runs: list[Run] = Field([Run()], min_length=1)
    """The trainings that are compared; they share every stage before training."""
    seeds: Seeds | None = None
    """Train every run once with each seed; a run's own `seed` or `seeds` go before these."""
    stages: list[Stage] = Field([], max_length=1)
    """Training after cross-entropy: all of `runs` go on with it, but those in virtual time."""
    grids: list[Grid] = Field([])
    """Many more runs in few lines: docs/paper.md."""

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's, without what was computed from the values of before."""
        copied = super().model_copy(update=update, deep=deep)
        for name in ("by_grid", "listed", "rows", "members", "by_id"):
            copied.__dict__.pop(name, None)
        return copied

    @property
    def common(self) -> Settings:
        """What all runs share."""
        return Settings.model_validate({key: getattr(self, key) for key in Settings.model_fields})

    @cached_property
    def by_grid(self) -> list[list[Run]]:
        """The runs of each of the grids, which may have some in common."""
        return [list(runs_of(grid, self.common)) for grid in self.grids]

    @cached_property
    def listed(self) -> list[Run]:
        """Runs and those of grids, each once, seeds not yet apart.

        A run that is there several times is decoded, and probed, if one of these is.
        """
        found = list(self.runs)
        bare = [_bare(run) for run in found]
        for run in itertools.chain(*self.by_grid):
            if (alone := _bare(run)) in bare:
                known = bare.index(alone)
                either = {key: getattr(run, key) or getattr(found[known], key) for key in _ADDED}
                found[known] = found[known].model_copy(update=either)
            else:
                found.append(run)
                bare.append(alone)
        rows: list[Run] = []
        for number, run in enumerate(found):
            rows.append(run)
            if number < len(self.runs) and not run.simulated:
                rows += self._after(run)
        return rows

    def _after(self, run: Run) -> list[Run]:
        """What the stages make of it."""
        return [StageRun.of(run, stage) for stage in self.stages]

    @cached_property
    def rows(self) -> dict[str, list[Run]]:
        """Rows of the tables and the runs in each: several where a run has `seeds`."""
        return {run.id: run.members(self.seeds or ()) for run in self.listed}

    def parts(self) -> dict[Part, list[str]]:
        """Rows that each part of the page shows, in the order of the grids."""
        found: dict[Part, list[str]] = {part: [] for part in PARTS}
        for grid, runs in zip(self.grids, self.by_grid, strict=True):
            found[grid.part] += [run.id for run in runs if run.id not in found[grid.part]]
        return found

    @cached_property
    def members(self) -> list[Run]:
        """Every run that is trained."""
        return [run for row in self.rows.values() for run in row]

    @cached_property
    def by_id(self) -> dict[str, Run]:
        """Every run that is trained, by its id."""
        return {run.id: run for run in self.members}

    @model_validator(mode="after")
    def _names(self) -> Training:
        check_seeds(self.seed, self.seeds, "training.")
        # the rows' names first: two rows that are alike would hide one another
        rows = [(row.id, [run.id for run in row.members(self.seeds or ())]) for row in self.listed]
        names = [row for row, _ in rows] + [i for row, ids in rows for i in ids if i != row]
        for name in names:  # a row of one run has that one's
            if names.count(name) > 1:
                raise ValueError(f"two runs have the name '{name}': give one of them a `name`")
        for run in self.members:
            batch, precision = (
                getattr(changed(self.common, run), k) for k in ("batch", "precision")
            )
            if run.probe and precision == "tf32":
                raise ValueError(f"run '{run.id}': a probe's small differences are lost in tf32")
            if batch % run.learners:
                raise ValueError(
                    f"batch {batch} cannot be divided among {run.learners} learners "
                    f"of run '{run.id}'"
                )
        return self


def _bare(run: Run) -> Run:
    """With nothing asked for besides its weights."""
    return run.model_copy(update=dict.fromkeys(_ADDED, False))
