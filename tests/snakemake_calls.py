"""Snakemake on the workflow: what it says, what it would give sbatch, the texts of the rules."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
SOON = ("latency-wait", "seconds-between-status-checks", "slurm-init-seconds-before-status-checks")


def run(*command: str, cwd: Path, path: str = "", env: dict[str, str] | None = None) -> str:
    """Output of a command that must not fail."""
    search = os.pathsep.join(filter(None, (path, str(BIN), os.environ["PATH"])))
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "PATH": search, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


def rules() -> dict[str, str]:
    """Every rule's text by its name."""
    files = [ROOT / "workflow/Snakefile", *sorted((ROOT / "workflow/rules").glob("*.smk"))]
    text = "\n".join(file.read_text() for file in files)
    parts = re.split(r"^ *rule (\w+):\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def submitted(*arguments: str, cwd: Path) -> str:
    """The lines for sbatch; nothing is submitted."""
    script = str(ROOT / "tests/sbatch_lines.py")
    done = subprocess.run(
        [sys.executable, script, *(f"--{name}=1" for name in SOON), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
