"""A dry run says what the whole would take, beside Snakemake's numbers of jobs."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from snakemake.logging import logger
from snakemake_interface_logger_plugins.common import LogEvent

from hadpsgd.config import Config
from hadpsgd.errors import UserError
from hadpsgd.planning.amounts import amounts
from hadpsgd.starting import input_faults

_announced: set[int] = set()


def announce(workflow: Any, config: Config, readers: Collection[str]) -> None:
    """From here on: after the jobs of a dry run, its disk and hours (`hadpsgd cost`), and what one
    of the rules `readers` will not find."""
    if id(workflow) not in _announced:  # each `use rule` of a module reads the Snakefile again
        _announced.add(id(workflow))
        logger.addHandler(_AfterJobs(workflow, config, readers))


class _AfterJobs(logging.Handler):
    def __init__(self, workflow: Any, config: Config, readers: Collection[str]) -> None:
        super().__init__(logging.INFO)
        self._workflow = workflow
        self._config = config
        self._readers = readers
        self._told = False

    def emit(self, record: logging.LogRecord) -> None:
        """A record of Snakemake's logger."""
        counted = getattr(record, "event", None) == LogEvent.RUN_INFO
        if counted and self._workflow.dryrun and not self._told:
            self._told = True
            logger.info(line(self._config))
            for fault in input_faults(self._workflow, self._config, self._readers):
                logger.error(f"This would fail: {fault}")


def line(config: Config) -> str:
    """What is said."""
    # here, since every job's Snakemake reads the Snakefile, too
    from hadpsgd.planning.cost import GIB, Machines, cost, disk, shown, total

    more = "`hadpsgd cost --config FILE` tells each stage, for machines that you name"
    speech = amounts(config)
    if speech is None:
        return f"Hours and disk: not known without the hours of speech ({more})."
    try:
        all_ = total(cost(config, Machines(cores=1), train=speech.train, test=speech.test))
    except UserError as error:
        return f"Hours: {error}"
    gib, hours = shown(disk(config, train=speech.train) / GIB), shown(all_.core_hours)
    return (
        f"The whole, from nothing: about {gib} GiB of disk and {hours} hours of a core, for "
        f"{shown(speech.train)} hours of training speech ({more})."
    )
