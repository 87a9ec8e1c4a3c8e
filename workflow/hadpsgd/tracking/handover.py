"""A training that goes on as another run's.

Checkpoints are named by settings of training and by examples. Where other settings changed and the
examples did not (data that was moved, say), the run of now has another key and goes on from the
same checkpoints. It is a run of its own for all that: its folder has a config, a provenance and an
MLflow run of its own, and the rows so far, from which seconds and curves come.
"""

from __future__ import annotations

import shutil
import sys
from contextlib import suppress
from pathlib import Path

from hadpsgd.config import Config, load, run_key
from hadpsgd.config.command import resolved
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_file, explain_os_errors, write_text
from hadpsgd.tracking import identity, system
from hadpsgd.tracking.identity import Identity
from hadpsgd.tracking.metrics_file import FILE as METRICS
from hadpsgd.tracking.training_run import CONFIG, PROVENANCE

_ROWS = ("metrics*.jsonl", ".metrics*.jsonl.*", system.PATTERN)
"""What training writes row by row into the folder of its run."""


def take_over(config: Config, run_id: str, *, checkpoints: Path, out: Path) -> None:
    """Make checkpoints those of this run, if they are another's; its rows go to `out`.

    Raises:
        UserError: no space, or no permission.
    """
    before = identity.read(checkpoints)
    if before is not None:
        here = identity.read(out) == before
        kept = here and (out / METRICS).is_file()
        folder = None if kept else _folder(before, beside=out)
        key = _key(checkpoints, run_id)
        if key not in ("", run_key(config, run_id)) or (folder is not None and not here):
            former = (key if folder is None else folder.name) if _any(checkpoints) else ""
            if former:
                lost = "" if folder or kept else "; its rows are gone, with seconds and curves"
                print(f"{run_id}: goes on from the checkpoints of {former}{lost}", file=sys.stderr)
            with explain_os_errors(out):
                _forget(out)
                if not kept:
                    _take(out, folder)
                # the checkpoints last: a kill before that leaves them the other run's
                now = identity.new(created=before.created, former=former)
                identity.write(out, now)
                identity.write(checkpoints, now)
                _forget(checkpoints)
    if not (checkpoints / CONFIG).is_file():  # it says whose they are; provenance takes its time
        write_text(checkpoints / CONFIG, resolved(config))


def _key(checkpoints: Path, run_id: str) -> str:
    """Of the run whose checkpoints they are; empty where that is not known."""
    with suppress(UserError, OSError):
        return run_key(load(checkpoints / CONFIG), run_id)
    return ""


def _any(checkpoints: Path) -> bool:
    """Whether there is something to go on from."""
    return any(checkpoints.glob("[0-9]*/node-*.pt"))


def _folder(who: Identity, *, beside: Path) -> Path | None:
    """Another run's folder that has the rows of this training, if there is one."""
    out = beside.absolute()
    for file in sorted(out.parent.glob(f"*/{METRICS}")):
        if file.parent != out and identity.read(file.parent) == who:
            return file.parent
    return None


def _take(out: Path, folder: Path | None) -> None:
    """The rows that lie in a folder, in place of those of another training."""
    for old in _rows(out):
        old.unlink(missing_ok=True)
    for file in _rows(folder) if folder is not None else ():
        with atomic_file(out / file.name) as temporary:
            shutil.copyfile(file, temporary)


def _rows(folder: Path) -> list[Path]:
    return [file for pattern in _ROWS for file in folder.glob(pattern)]


def _forget(folder: Path) -> None:
    """Where another run came from."""
    for name in PROVENANCE:
        (folder / name).unlink(missing_ok=True)
