"""Whether a config can have the page of the papers' claims."""

from __future__ import annotations

import sys
from pathlib import Path

from hadpsgd.config import Config
from hadpsgd.errors import UserError
from hadpsgd.tracking.uri import WHY_OFF, is_on


def check(config: Config, where: Path | str) -> None:
    """Whether the page can be made of runs of this config.

    Raises:
        UserError: it has no grids, or its runs are not tracked.
    """
    if not any(config.training.by_grid):
        fix = "config/paper_quick.yaml has some"
        raise UserError("no training.grids with runs", where=where, fix=fix)
    check_tracked(config)


def check_tracked(config: Config) -> None:
    """Whether its runs are in MLflow, from which the page is made; raises UserError."""
    if not is_on(config):
        raise UserError(WHY_OFF, fix="The page is made from runs in MLflow")


def check_asked(config: Config) -> None:
    """The same as a Snakefile is read, if this is `snakemake paper`; raises as `check`.

    Snakemake tells its targets only after the Snakefile is read.
    """
    if "paper" in sys.argv[1:]:
        check(config, f"config '{config.name}'")
