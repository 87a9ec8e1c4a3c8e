"""Snakemake with the Slurm executor, but nothing is submitted: prints every sbatch line.

    python tests/sbatch_lines.py --profile DIR --snakefile Snakefile ...

Each job counts as done as soon as it would have been submitted; its outputs are empty files.
"""

from __future__ import annotations

import re
import subprocess
import sys
import types
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import snakemake_executor_plugin_slurm as plugin
from snakemake.cli import main

LINES: list[str] = []


class Sbatch:
    """In place of `subprocess.Popen`: notes the line and gives a job id."""

    returncode = 0

    def __init__(self, call: str, **_: Any) -> None:
        LINES.append(call)

    def communicate(self, **_: Any) -> tuple[str, str]:
        return str(len(LINES)), ""


def line_of(call: str) -> str:
    """Without what differs from run to run, and without the command that Snakemake wraps."""
    call = call.split(" --wrap=")[0]
    call = re.sub(r"--job-name \S+", "--job-name RUN", call)
    call = re.sub(r"--output \S+/slurm_logs/", "--output slurm_logs/", call)
    return re.sub(r" -D \S+", "", call)


async def _all_done(self: Any, active: list[Any]) -> AsyncGenerator[Any]:
    for info in active:
        for job in info.job.jobs if info.job.is_group() else [info.job]:
            for output in [*job.output, *([job.benchmark] if job.benchmark else [])]:
                path = Path(str(output))
                (path if output.is_directory else path.parent).mkdir(parents=True, exist_ok=True)
                if not path.is_dir():
                    path.touch()
        self.report_job_success(info)
    return
    yield


if __name__ == "__main__":
    plugin.subprocess = types.SimpleNamespace(**{**vars(subprocess), "Popen": Sbatch})
    plugin.validate_account = lambda account, _: account  # there may be no Slurm to ask
    plugin.Executor.check_active_jobs = _all_done
    try:
        main(sys.argv[1:])
    finally:
        print(*sorted(map(line_of, LINES)), sep="\n")
