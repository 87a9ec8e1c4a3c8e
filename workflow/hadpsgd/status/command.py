"""`hadpsgd status`: a whole workflow on one screen: what runs, what is left, what failed.

Reads what the workflow records (`hadpsgd.status.journal`), benchmarks and logs; writes nothing.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import time
from pathlib import Path

from hadpsgd.config import load, start_fingerprint
from hadpsgd.config.schema import Config
from hadpsgd.errors import UserError
from hadpsgd.files import WORKFLOW_LOCK
from hadpsgd.locks import look
from hadpsgd.setup.start import command
from hadpsgd.status.jobs import Jobs, read
from hadpsgd.status.screen import Place, Screen

_SQUEUE_SECONDS = 5.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", type=Path, required=True, help="config (YAML)")


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    config = load(args.config)
    print("\n".join(lines(config, args.config)))
    return 0


def lines(config: Config, file: Path) -> list[str]:
    """The screen of a config's workflow; raises as `jobs.read`."""
    out = Path(config.results) / config.name
    lock = look(out / WORKFLOW_LOCK)
    holder = lock.content if lock.held else ""
    jobs = read(out)
    if jobs is None and holder:
        return [f"{config.name}: starting; {holder} has recorded no jobs yet"]
    if jobs is None:
        never = f"{config.name}: never started; no workflow has recorded jobs in {out}"
        return [never, command("local", file)]
    screen = Screen(
        config.name,
        jobs,
        holder=holder,
        sure=lock.sure,
        now=time.time(),
        places=_places(jobs) if holder else {},
    )
    return [*screen.lines(), *_changed(config, file, jobs)]


def _changed(config: Config, file: Path, jobs: Jobs) -> list[str]:
    """Whether the config asks for something else than the last start's did."""
    try:
        started = load(Path(jobs.start.folder) / jobs.start.snapshot)
    except (UserError, OSError):
        return []
    if start_fingerprint(started) == start_fingerprint(config):
        return []
    return [
        "",
        f"{file} is not what the last start went by; `{command('local', file, '-n')}` lists what "
        "the next start does",
    ]


def _places(jobs: Jobs) -> dict[str, Place]:
    """Where jobs of Slurm are and in which state, by number; empty if Slurm does not say."""
    numbers = [jobs.numbers[job.job] for job in jobs.begun if job.job in jobs.numbers]
    if jobs.start.executor != "slurm" or not numbers or shutil.which("squeue") is None:
        return {}
    command = ["squeue", "-h", "-j", ",".join(numbers), "-o", "%i|%T|%N|%M"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_SQUEUE_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    rows = [line.split("|") for line in done.stdout.splitlines() if line.count("|") == 3]
    return {row[0]: _place(*row) for row in rows}


def _place(number: str, state: str, hosts: str, runs: str) -> Place:
    text = f"Slurm job {number}, {state.lower()}" + f" on {hosts}" * bool(hosts)
    return Place(text=text, runs=0.0 if state == "PENDING" else _seconds(runs))


def _seconds(text: str) -> float | None:
    """Of Slurm's [days-][[hours:]minutes:]seconds; None where it says something else."""
    days, _, clock = text.rpartition("-")
    try:
        numbers = [int(days or 0), *map(int, clock.split(":"))]
    except ValueError:
        return None
    weights = (86_400, *(60**power for power in reversed(range(len(numbers) - 1))))
    return float(sum(n * w for n, w in zip(numbers, weights, strict=True)))
