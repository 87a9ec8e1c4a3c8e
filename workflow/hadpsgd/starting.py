"""What is done as a workflow starts, also where ours is a module of another workflow.

Snakemake runs the hooks of the main Snakefile alone (`onstart` of a module is not inherited).
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from snakemake.exceptions import WorkflowError

from hadpsgd.config import Config
from hadpsgd.errors import UserError, raise_all
from hadpsgd.files import WORKFLOW_LOCK, explain_os_errors
from hadpsgd.locks import Seen, ends, locked, look, myself
from hadpsgd.training.slurm import check_partition

_held: dict[Path, ExitStack] = {}
_seen: dict[Path, Seen] = {}


def default_config() -> str:
    """The config where the command line names none: `snakemake paper` has one of its own.

    Snakemake tells its targets only after the Snakefile is read.
    """
    return "config/paper_quick.yaml" if "paper" in sys.argv[1:] else "config/demo.yaml"


@contextmanager
def one_line() -> Iterator[None]:
    """As a Snakefile is read: a UserError ends Snakemake with its one line, and no more."""
    try:
        yield
    except UserError as error:
        print(f"hadpsgd: error: {error}", file=sys.stderr)
        raise SystemExit(1) from None


def before_start(workflow: Any, do: Callable[[], None]) -> None:
    """Call `do` before the first job, ahead of the main Snakefile's own `onstart`, if any.

    A UserError ends the workflow with its one line.
    """
    register, before = workflow.onstart, workflow._onstart

    def first(hook: Callable[[Any], None]) -> Callable[[Any], None]:
        def both(log: Any) -> None:
            try:
                do()
            except UserError as error:  # without the lines that it went through
                raise WorkflowError(str(error)) from None
            hook(log)

        return both

    workflow._onstart = first(before)
    workflow.onstart = lambda hook: register(first(hook))  # of a Snakefile that goes on after us


def plans(out: Path) -> None:
    """Say, as the Snakefile is read, that what is to be made is found out from here on.

    Raises:
        UserError: nothing can lie there.
    """
    there = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    if not there.is_dir():
        raise UserError("`results` lies below a file", where=there, fix="Name a folder")
    _seen.setdefault(out, look(out / WORKFLOW_LOCK))


def hold(out: Path) -> None:
    """Keep other workflows out of a results folder until this process ends.

    The profiles switch Snakemake's own lock off: it outlives a kill -9, this one does not. (Stages
    do not have it: they end with a workflow that is killed, and what they were at is incomplete.)

    Raises:
        UserError: one is there already; or one was there since `plans`, so that finished work
            would be done again; or nothing can be written there.
    """
    if out not in _held:  # each `use rule` of a module reads it again
        with explain_os_errors(out):
            out.mkdir(parents=True, exist_ok=True)
        stack = ExitStack()
        does = "runs a workflow here"
        lock = locked(out / WORKFLOW_LOCK, myself(), does=does, seen=_seen.get(out))
        descriptor = stack.enter_context(lock)
        if descriptor is not None:
            atexit.register(_ends, descriptor, os.getpid())
        _held[out] = stack


def _ends(descriptor: int, holder: int) -> None:
    if os.getpid() == holder:  # a fork of it ends, too
        ends(descriptor, myself())


def check_hosts(workflow: Any, rule: str) -> None:
    """Refuse trainings for which Slurm has not enough hosts, before anything is submitted.

    `rule` is the name of the rule that trains.

    Raises:
        UserError: a partition is too small.
    """
    if workflow.executor_plugin.name != "slurm":
        return
    for job in workflow.dag.needrun_jobs():
        if job.rule.name == rule:
            where = job.resources.get("slurm_partition") or ""
            check_partition(job.resources.nodes, partition=where, run=job.wildcards.run)


def check_inputs(workflow: Any, config: Config, rules: Collection[str]) -> None:
    """Refuse, before the first job, what `input_faults` finds.

    Raises:
        UserError: a path is missing, or a recording.
    """
    raise_all(input_faults(workflow, config, rules), config.name)


def input_faults(workflow: Any, config: Config, rules: Collection[str]) -> list[UserError]:
    """What jobs that are to run would not find of what the config names. Data that nothing reads
    any more may be elsewhere by now.

    rules: names of those that read it.
    """
    from hadpsgd.setup.inputs import faults  # here, since every job reads the Snakefile, too

    reads = any(job.rule.name in rules for job in workflow.dag.needrun_jobs())
    return faults(config) if reads else []


def expand_parameters(workflow: Any) -> None:
    """Have all that will run know its parameters, before the files that they tell of change."""
    for job in workflow.dag.needrun_jobs():
        _ = job.params


def look_behind_ancient(workflow: Any) -> None:
    """Have Snakemake look at all jobs that it might have to run.

    It asks of a job whether inputs or parameters changed only if no job before it will run. Where
    one will, but only ancient() inputs lie between, it asks nothing, and what is out of date would
    be made by the next start alone.
    """
    if getattr(workflow, "_looks_behind_ancient", False):  # `use rule` reads a module again
        return
    workflow._looks_behind_ancient = True
    build = workflow._build_dag

    def built() -> None:
        build()
        seen: set[Any] = set()
        while jobs := set(workflow.async_run(_passed_over(workflow))) - seen:
            seen |= jobs
            for job in jobs:
                for file in job.input:
                    file.flags.pop("ancient", None)
            workflow.async_run(workflow.dag.update_needrun())

    workflow._build_dag = built


async def _passed_over(workflow: Any) -> list[Any]:
    """Jobs whose outputs are out of date and would not be made."""
    dag, found = workflow.dag, []
    for job in dag.jobs:
        behind = any(f.is_ancient for f in job.input) and not dag.needrun(job)
        if behind and any(map(dag.needrun, dag.dependencies[job])):
            oldest = await job.output_mintime
            inputs = [f for f in job.input if await f.exists()] if oldest else []
            if any([await f.is_newer(oldest) for f in inputs]) or (
                workflow.persistence.has_metadata(job)
                and (
                    workflow.persistence.params_changed(job)
                    or any(workflow.persistence.input_changed(job))
                )
            ):
                found.append(job)
    return found
