"""Checks of a cluster: its programs, its partitions, and whether its hosts see our files."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

import hadpsgd
from hadpsgd.setup.findings import Finding
from hadpsgd.setup.places import LOCAL, existing, file_system

PROGRAMS = {
    "slurm": ("sbatch", "sinfo", "squeue", "srun"),
    "sge": ("qsub", "qstat", "qdel"),
    "pbs": ("qsub", "qstat", "qdel"),
}
PLUGINS = {
    "slurm": "snakemake_executor_plugin_slurm",
    "sge": "snakemake_executor_plugin_cluster_generic",
    "pbs": "snakemake_executor_plugin_cluster_generic",
}
_ASK_SECONDS = 10
_START_SECONDS = 20
_SEEN_SECONDS = 10


def check(kind: str, results: Path) -> Iterator[Finding]:
    """All checks of a kind of cluster; `local` has none but whether Slurm is there."""
    if kind == "local":
        return
    missing = [name for name in PROGRAMS[kind] if shutil.which(name) is None]
    if missing:
        yield Finding(
            level="fail",
            what=kind,
            found=f"{', '.join(missing)} not in PATH",
            fix="Log in to a host of the cluster, or run on this one: --profile local",
        )
    else:
        yield Finding(level="ok", what=kind, found=f"{', '.join(PROGRAMS[kind])} in PATH")
    if importlib.util.find_spec(PLUGINS[kind]) is None:
        fix = f"pip install {PLUGINS[kind].replace('_', '-')}"
        yield Finding(level="fail", what="Snakemake", found=f"no {PLUGINS[kind]}", fix=fix)
    system = file_system(existing(results))
    if system in LOCAL:
        yield Finding(
            level="warn",
            what="shared folder",
            found=f"{existing(results)} is {system}, which hosts rarely share",
            fix="Set `results` to a folder that all hosts have by the same path",
        )
    if kind == "slurm" and not missing:
        wanted = _profile()
        partition = partitions(str(wanted.get("slurm_partition", "")))
        yield partition
        if partition.level == "ok":
            yield other_host(existing(results), wanted)


def _profile() -> dict[str, Any]:
    """default-resources of profiles/slurm: of the current folder, or of the checkout."""
    for folder in (Path(), Path(hadpsgd.__file__).resolve().parents[2]):
        file = folder / "profiles/slurm/config.yaml"
        if file.is_file():
            content = yaml.safe_load(file.read_text("utf-8")) or {}
            return content.get("default-resources") or {}
    return {}


def partitions(wanted: str) -> Finding:
    """Whether the controller answers, and has the partition up (Slurm's default if empty)."""
    try:
        done = _run("sinfo", "-h", "-o", "%P|%a|%D", seconds=_ASK_SECONDS)
    except subprocess.TimeoutExpired:
        fix = "Ask the cluster's people: scontrol ping"
        return Finding(level="fail", what="partition", found="sinfo does not answer", fix=fix)
    if done.returncode:
        fix = "Ask the cluster's people: scontrol ping"
        return Finding(level="fail", what="partition", found=_last(done.stderr), fix=fix)
    rows: dict[str, tuple[str, int]] = {}
    default = ""
    for line in done.stdout.splitlines():
        name, state, count = line.strip().split("|")
        default = name.rstrip("*") if name.endswith("*") else default
        known = rows.get(name.rstrip("*"), (state, 0))[1]
        rows[name.rstrip("*")] = (state, known + int(count))
    there = ", ".join(rows)
    names = wanted.split(",") if wanted else [default]  # a job goes to whichever starts it first
    name = next((name for name in names if name not in rows), names[0])
    if name not in rows:
        found = f"no partition {name}" if name else "no default partition, and the profile has none"
        fix = f"Set slurm_partition in profiles/slurm/config.yaml; there are {there}"
        return Finding(level="fail", what="partition", found=found, fix=fix)
    state, hosts = rows[name]
    if state != "up":
        fix = f"Set another in profiles/slurm/config.yaml; there are {there}"
        return Finding(level="fail", what="partition", found=f"{name} is {state}", fix=fix)
    return Finding(level="ok", what="partition", found=f"{name} is up, {hosts} hosts")


def other_host(folder: Path, wanted: dict[str, Any]) -> Finding:
    """A job on a host reads what is written here, and we read what it writes."""
    with tempfile.TemporaryDirectory(prefix=".doctor.", dir=folder) as name:
        here, there = Path(name) / "here", Path(name) / "there"
        here.write_text("here")
        script = (
            f"test -f {shlex.quote(str(here))} || {{ echo not seen; exit 1; }}; "
            f"cd {shlex.quote(name)} && hostname > part && mv part there"
        )
        flags = [
            f"--{option}={wanted[key]}"
            for option, key in (
                ("partition", "slurm_partition"),
                ("account", "slurm_account"),
                ("qos", "qos"),
            )
            if wanted.get(key)
        ]
        try:
            done = _run(
                *("srun", "--nodes=1", "--ntasks=1", "--time=1", "--chdir=/", "--quiet"),
                *(f"--immediate={_START_SECONDS}", *flags, "sh", "-c", script),
                seconds=2 * _START_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return _not_started("no host answered in time")
        if "not seen" in done.stdout:
            return Finding(
                level="fail",
                what="shared folder",
                found=f"a host of the cluster does not see {folder}",
                fix="Set `results` to a folder that all hosts have by the same path",
            )
        if done.returncode:
            return _not_started(_last(done.stderr))
        deadline = time.monotonic() + _SEEN_SECONDS
        while not there.is_file():
            if time.monotonic() > deadline:
                return Finding(
                    level="fail",
                    what="shared folder",
                    found=f"what a host wrote into {folder} is not seen here",
                    fix="Set `results` to a folder that all hosts have by the same path",
                )
            time.sleep(0.2)
        host = there.read_text().strip()
    return Finding(level="ok", what="shared folder", found=f"{folder} is seen from {host} and back")


def _not_started(why: str) -> Finding:
    return Finding(
        level="warn",
        what="shared folder",
        found=f"not tried, no job started: {why}",
        fix="Are account and partition right in profiles/slurm/config.yaml? Else try again later",
    )


def _run(*command: str, seconds: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)


def _last(text: str) -> str:
    return next(iter(reversed(text.strip().splitlines())), "no reason given")
