"""Checks of the places that a workflow writes to: results folder, disk, MLflow's store."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from hadpsgd.errors import UserError
from hadpsgd.files import check_folder
from hadpsgd.setup.findings import Finding
from hadpsgd.tracking.uri import database_file, knock, redacted

LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "f2fs"})
"""File systems that one host has for itself."""
_SECONDS = 5
_TRY = """
import fcntl, sys
with open(sys.argv[1], "r+") as stream:
    lock = {"flock": fcntl.flock, "fcntl": fcntl.lockf}[sys.argv[2]]
    try:
        lock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(3)
"""
_REFUSED = 3


def existing(path: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    path = path.absolute()
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def writing(results: Path) -> Finding:
    """A file is written, renamed over another and read."""
    folder = existing(results)
    try:
        check_folder(results)
        with tempfile.TemporaryDirectory(prefix=".doctor.", dir=folder) as name:
            old, new = Path(name) / "old", Path(name) / "new"
            old.write_text("old")
            with new.open("w") as stream:
                stream.write("new")
                stream.flush()
                os.fsync(stream.fileno())
            new.replace(old)
            if old.read_text() != "new" or new.exists():
                raise OSError(0, "a renamed file is not where it should be")
    except UserError as error:
        return Finding(level="fail", what="results", found=str(error), fix="")
    except OSError as error:
        found = f"{folder}: {error.strerror or error}"
        fix = "Set `results` to a folder that you may write to"
        return Finding(level="fail", what="results", found=found, fix=fix)
    found = f"{folder} ({file_system(folder)}): files are written and renamed"
    return Finding(level="ok", what="results", found=found)


def file_system(folder: Path) -> str:
    """Its kind, such as ext4 or nfs4; `unknown` where the system does not say."""
    folder = folder.resolve()
    mounts = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    return next((mounts[f] for f in (folder, *folder.parents) if f in mounts), "unknown")


def locks(results: Path) -> Iterator[Finding]:
    """Another process is refused what this one has locked."""
    folder = existing(results)
    kinds: dict[str, Callable[[int, int], object]] = {"flock": fcntl.flock, "fcntl": fcntl.lockf}
    for name, lock in kinds.items():
        try:
            with tempfile.NamedTemporaryFile(prefix=".doctor.", dir=folder) as file:
                lock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                other = subprocess.run(
                    [sys.executable, "-c", _TRY, file.name, name],
                    capture_output=True,
                    check=False,
                    timeout=_SECONDS * 4,
                )
        except (OSError, subprocess.TimeoutExpired) as error:
            yield _no_locks(folder, name, str(error))
            continue
        if other.returncode == _REFUSED:
            yield Finding(level="ok", what=f"locks ({name})", found=f"{folder} has them")
        else:
            yield _no_locks(folder, name, "two processes have the same lock")


def _no_locks(folder: Path, name: str, why: str) -> Finding:
    return Finding(
        level="warn",
        what=f"locks ({name})",
        found=f"{folder}: {why}",
        fix="Start a workflow only once, or set `results` to another file system",
    )


def disk(results: Path, need: float | None) -> Finding:
    """Free bytes against the need, where that is known."""
    folder = existing(results)
    free = shutil.disk_usage(folder).free
    found = f"{free / 1e9:.1f} GB free in {folder}"
    if need is None:
        found += "; --hours HOURS says whether it suffices"
        return Finding(level="ok", what="disk", found=found)
    found += f", about {need / 1e9:.1f} GB needed"
    if free >= need:
        return Finding(level="ok", what="disk", found=found)
    fix = "Free some, or set `results` to another disk"
    return Finding(level="fail", what="disk", found=found, fix=fix)


def store(uri: str) -> Finding:
    """Whether MLflow's tracking store answers. A run goes on without it: so nothing fails."""
    shown = redacted(uri)
    if uri == "none":
        return Finding(level="ok", what="MLflow", found="none: nothing is recorded")
    try:
        if file := database_file(uri):
            return _database(file)
        if uri.startswith("http"):
            with urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=_SECONDS) as answer:
                answer.read(100)
        else:
            knock(uri)
    except (OSError, ValueError) as error:  # URLError is an OSError
        why = getattr(error, "reason", None) or error
        return Finding(
            level="warn",
            what="MLflow",
            found=f"{shown}: {why}",
            fix="Start the server; till then records wait in the spool: hadpsgd track",
        )
    return Finding(level="ok", what="MLflow", found=f"{shown} answers")


def _database(file: Path) -> Finding:
    if file.is_dir():
        fix = "Set tracking.uri to a file"
        return Finding(level="warn", what="MLflow", found=f"{file}: a folder", fix=fix)
    if not os.access(file if file.exists() else existing(file.parent), os.W_OK):
        fix = "Set tracking.uri to a file that you may write to"
        return Finding(level="warn", what="MLflow", found=f"{file}: not writable", fix=fix)
    return Finding(
        level="ok", what="MLflow", found=f"{file} ({'there' if file.exists() else 'new'})"
    )
