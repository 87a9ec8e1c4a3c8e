"""The profiles of Grid Engine and PBS, with stand-ins for their programs.

The stand-ins take the lines as those schedulers do: memory by the slot or by the job, times in
seconds; a job that asked for less than it needs is killed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
SNAKEFILE = """
rule all:
    default_target: True
    input: "usual", "large"

rule usual:
    output: "usual"
    shell: "touch {output}"

rule large:  # killed at the first attempt
    output: "large"
    threads: 3
    resources:
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=90,
    shell: "touch {output}"
"""
NEEDS_MB = 5000
QSUB = """#!/bin/sh
echo "$@" >> lines
number=$(wc -l < lines)
for script; do :; done
if grep -q large "$script" && [ $(MEMORY) -lt NEEDS ]; then
  echo 137 > status.$number
else
  (sh "$script" > log.$number 2>&1; echo $? > status.$number) &
fi
echo $number""".replace("NEEDS", str(NEEDS_MB))
SGE = {
    "qsub": QSUB.replace(
        "MEMORY",
        r"""echo "$@" | sed 's/.*smp \([0-9]*\).*h_vmem=\([0-9]*\)M .*/\1 * \2/' | xargs """
        + "expr",
    ),
    "qstat": """#!/bin/sh
[ "$1" = -j ] && [ -e "status.$2" ] && exit 1
exit 0""",
    "qacct": """#!/bin/sh
echo "jobnumber    $2"
echo "failed       0"
echo "exit_status  $(cat status.$2)" """,
}
PBS = {
    "qsub": QSUB.replace("MEMORY", r"""echo "$@" | sed 's/.*:mem=\([0-9]*\)mb .*/\1/'"""),
    "qstat": """#!/bin/sh
echo "Job Id: $3"
if [ -e "status.$3" ]; then
  echo "    job_state = F"
  echo "    Exit_status = $(cat status.$3)"
else
  echo "    job_state = R"
fi""",
}


@pytest.mark.parametrize(
    ("profile", "programs", "lines"),
    [
        (
            "sge",
            SGE,
            {
                "-pe smp 1 -l h_vmem=4000M -l h_rt=7200",
                "-pe smp 3 -l h_vmem=1334M -l h_rt=5400",
                "-pe smp 3 -l h_vmem=2667M -l h_rt=5400",
            },
        ),
        (
            "pbs",
            PBS,
            {
                "-l select=1:ncpus=1:mem=4000mb -l walltime=7200",
                "-l select=1:ncpus=3:mem=4000mb -l walltime=5400",
                "-l select=1:ncpus=3:mem=8000mb -l walltime=5400",
            },
        ),
    ],
)
def test_jobs_ask_for_what_they_need(
    profile: str, programs: dict[str, str], lines: set[str], tmp_path: Path
) -> None:
    """h_vmem is by the slot, h_rt and walltime are seconds; who is killed gets more memory."""
    pytest.importorskip("snakemake_executor_plugin_cluster_generic")
    (tmp_path / "bin").mkdir()
    for name, text in programs.items():
        (tmp_path / "bin" / name).write_text(text + "\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "profiles").symlink_to(ROOT / "profiles")
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    done = subprocess.run(
        [
            *("snakemake", "--profile", f"profiles/{profile}"),
            *("--seconds-between-status-checks", "1", "--latency-wait", "5"),
        ],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}/bin:{BIN}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    asked = (tmp_path / "lines").read_text()
    assert set(re.findall(r"-(?:pe|l select).*(?:h_rt|walltime)=\d+", asked)) == lines
    assert (tmp_path / f".snakemake/{profile}_logs").is_dir()
    assert len(asked.splitlines()) == 3 and "Trying to restart job" in done.stderr
