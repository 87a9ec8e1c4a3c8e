"""The line that starts a workflow."""

from __future__ import annotations

import shlex
from pathlib import Path

import hadpsgd

ROOT = Path(hadpsgd.__file__).resolve().parents[2]
"""Of a checkout, which has the workflow and its profiles."""
PROFILES = {
    "local": "local",
    "slurm": "slurm",
    "sge": "profiles/sge",
    "pbs": "profiles/pbs",
}
"""Cluster to Snakemake's --profile, in a checkout."""


def command(cluster: str, config: Path, *options: str) -> str:
    """The line that runs a config from the current folder, be it the checkout or another."""
    profile, words = Path(PROFILES[cluster]), ["snakemake", *options]
    # a recipe of Kaldi has a folder local/, too
    here = Path("Snakefile").is_file() and (profile / "config.yaml").is_file()
    if not here and (ROOT / "Snakefile").is_file():
        profile = ROOT / profile
        words += ["--snakefile", str(ROOT / "Snakefile")]
    return shlex.join([*words, "--profile", str(profile), "--configfile", str(config)])
