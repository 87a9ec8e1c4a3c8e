"""Checks of the machine that the doctor runs on: Python, packages, processor, memory, GPUs."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import torch
from packaging.requirements import Requirement
from packaging.version import Version

import hadpsgd
from hadpsgd.setup.findings import Finding

OLDEST, NEWEST = (3, 11), (3, 13)
"""Versions of Python; as pyproject.toml's requires-python."""
FEW_FILES, TOO_FEW_FILES = 1024, 256
SMALL_SHM = 256 * 2**20
SMALL_MEMORY = 2 * 2**30
_NAMED = 4
_SECONDS = 10


def check() -> Iterator[Finding]:
    """All of them."""
    yield python()
    yield packages(Path(hadpsgd.__file__).resolve().parents[2] / "requirements.lock")
    yield processor(Path("/proc/cpuinfo"))
    yield memory()
    yield gpus()
    yield open_files()
    yield shared_memory(Path("/dev/shm"))


def python() -> Finding:
    """Its version."""
    version = platform.python_version()
    if OLDEST <= sys.version_info[:2] <= NEWEST:
        return Finding(level="ok", what="Python", found=f"{version} in {sys.prefix}")
    allowed = " to ".join(f"{major}.{minor}" for major, minor in (OLDEST, NEWEST))
    fix = "make setup PYTHON=python3.11"
    return Finding(level="fail", what="Python", found=f"{version}; needed: {allowed}", fix=fix)


def packages(lock: Path) -> Finding:
    """Whether what is installed is what the lock pins; bits of results depend on it."""
    if not lock.is_file():
        return Finding(level="ok", what="packages", found="no requirements.lock beside the package")
    lines = (line.partition("#")[0].strip() for line in lock.read_text("utf-8").splitlines())
    pinned = [Requirement(line) for line in lines if line and not line.startswith("-")]
    wanted = [each for each in pinned if each.marker is None or each.marker.evaluate()]
    other, missing = [], []
    for each in wanted:
        try:
            installed = Version(importlib.metadata.version(each.name))
        except importlib.metadata.PackageNotFoundError:
            missing.append(each.name)
            continue
        if not each.specifier.contains(installed, prereleases=True):
            other.append(f"{each.name} {installed} ({each.specifier})")
    if not other and not missing:
        return Finding(level="ok", what="packages", found=f"{len(wanted)} as in {lock.name}")
    told = []
    if other:
        told.append(f"{len(other)} of other versions than {lock.name} has: {_some(other)}")
    if missing:
        told.append(f"{len(missing)} missing: {_some(missing)}")
    fix = "make setup, or pip install -r requirements.lock"
    return Finding(level="warn", what="packages", found="; ".join(told), fix=fix)


def processor(information: Path) -> Finding:
    """Cores that we may use, and what they do in one instruction."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    flags: set[str] = set()
    if information.is_file():
        for line in information.read_text(errors="replace").splitlines():
            if line.startswith("flags"):
                flags = set(line.partition(":")[2].split())
                break
    if flags and "avx2" not in flags:
        return Finding(
            level="warn",
            what="processor",
            found=f"{cores} cores without AVX2: training is several times slower",
            fix="Take a newer host",
        )
    fast = [name for name in ("amx_bf16", "avx512_bf16") if name in flags]
    bf16 = f"bf16 in hardware ({', '.join(fast)})" if fast else "no bf16: keep precision fp32"
    return Finding(level="ok", what="processor", found=f"{cores} cores, {bf16}")


def memory() -> Finding:
    """What is free now."""
    state = psutil.virtual_memory()
    found = f"{state.available / 2**30:.1f} of {state.total / 2**30:.1f} GiB free"
    if state.available >= SMALL_MEMORY:
        return Finding(level="ok", what="memory", found=found)
    fix = "End other programs, or take a larger host"
    return Finding(level="warn", what="memory", found=found, fix=fix)


def gpus() -> Finding:
    """What torch sees, held against what the driver has."""
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        return Finding(level="ok", what="GPUs", found=f"{len(names)}: {', '.join(names)}")
    driver = _driver()
    if driver:
        return Finding(
            level="warn",
            what="GPUs",
            found=f"the driver has {driver}, torch {torch.__version__} sees none",
            fix="Is CUDA_VISIBLE_DEVICES empty, the driver too old, or torch a build for CPUs?",
        )
    return Finding(level="ok", what="GPUs", found="none here; networks train on the processor")


def _driver() -> str:
    """GPUs by nvidia-smi; empty without one."""
    if shutil.which("nvidia-smi") is None:
        return ""
    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    rows = [line for line in done.stdout.splitlines() if line.startswith("GPU ")]
    return f"{len(rows)}" if done.returncode == 0 and rows else ""


def open_files() -> Finding:
    """The limit of open files: shards, and a socket for each partner of a learner."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= FEW_FILES:
        return Finding(level="ok", what="open files", found=f"up to {soft}")
    top = "" if hard == resource.RLIM_INFINITY else f" (up to {hard} without root)"
    return Finding(
        level="fail" if soft < TOO_FEW_FILES else "warn",
        what="open files",
        found=f"up to {soft}",
        fix=f"ulimit -n {FEW_FILES * 4}{top}",
    )


def shared_memory(place: Path) -> Finding:
    """Its size: decoding puts lattices on their way there, image loaders their batches."""
    if not os.access(place, os.W_OK):
        found = f"{place} is not there, or not writable"
        return Finding(level="warn", what="shared memory", found=found, fix="Mount a tmpfs there")
    size = shutil.disk_usage(place).total
    found = f"{size / 2**20:.0f} MiB in {place}"
    if size >= SMALL_SHM:
        return Finding(level="ok", what="shared memory", found=found)
    fix = "In a container: --shm-size=1g"
    return Finding(level="warn", what="shared memory", found=found, fix=fix)


def _some(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
