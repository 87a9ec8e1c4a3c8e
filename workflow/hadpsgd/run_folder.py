"""The folder of a finished training run, by its path or by its key; names in results folders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from glob import escape
from pathlib import Path

from hadpsgd.errors import UserError
from hadpsgd.files import check_folder, explain_os_errors
from hadpsgd.locks import locked, myself

LAUNCH_LOCK = ".launch.lock"
"""In a run's folder, and in that of its checkpoints: who trains it."""


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Make a folder and hold its lock: one training at a time writes there.

    Raises:
        UserError: it is a file, or another process trains there.
    """
    check_folder(out)
    with explain_os_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    with locked(out / LAUNCH_LOCK, myself(), does="trains this model"):
        yield


def find(name: str, results: Path, *, also: str = "", others: Iterable[str] = ()) -> Path:
    """The folder of a run.

    Args:
        name: `RESULTS/NAME/runs/KEY`, or `KEY`.
        results: where keys are looked for.
        also: what else could have been given, for the error.
        others: names of what is no run and could have been given, too; looked at for the error.

    Raises:
        UserError: there is no such run, or more than one.
    """
    folder = Path(name)
    if folder.is_dir():
        return folder.resolve()
    found = sorted(results.glob(f"*/runs/{escape(name)}")) if name else []
    if len(found) > 1:
        folders = " or ".join(map(str, found))
        raise UserError(
            f"run '{name}' is there {len(found)} times", fix=f"Give its folder: {folders}"
        )
    if not found:
        known = sorted({*(path.name for path in results.glob("*/runs/*-*")), *others})
        there = f"There are: {', '.join(known)}" if known else "Give the run's folder, or --results"
        raise UserError(f"no run '{name}' in {results}", fix=f"{there}{also}")
    return found[0].resolve()


def check_finished(folder: Path, files: Sequence[str], why: str) -> None:
    """Refuse the folder of a run that lacks files.

    Raises:
        UserError: names the first one; `why` says who wants it.
    """
    for file in files:
        if not (folder / file).is_file():
            raise UserError(f"has no {file}", where=folder, fix=why)
