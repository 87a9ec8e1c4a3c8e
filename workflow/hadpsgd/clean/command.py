"""`hadpsgd clean`: lists runs of a results folder that no config names, and removes them.

A run's folders are keyed by what decides its weights: another learning rate gives new ones, and
those of before stay. Data, features, alignments and graphs are not keyed, and stay as they are.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hadpsgd.clean.claims import check_started, claims, keys, resumable
from hadpsgd.clean.folders import Found, of_runs, remove, run_of_checkpoints, sweep
from hadpsgd.config import Config, load
from hadpsgd.errors import UserError
from hadpsgd.files import WORKFLOW_LOCK
from hadpsgd.locks import ends, locked, look, myself
from hadpsgd.progress import counted


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", type=Path, required=True, help="config (YAML)")
    parser.add_argument("--remove", action="store_true", help="remove them; else they are listed")
    parser.add_argument(
        "--others",
        action="store_true",
        help="also runs of other configs that have the same results folder",
    )


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    config = load(args.config)
    out = Path(config.results) / config.name
    if not out.is_dir():
        print(f"{out}: nothing there")
        return 0
    if not args.remove:
        _sort_out(config, args.config, others=args.others)
        held = look(out / WORKFLOW_LOCK)
        running = f"; {held.content} runs a workflow here, so not now" * held.held
        print(f"nothing was removed: --remove removes what is listed{running}")
        return 0
    check_started(config, args.config)
    with _alone(out):
        errors = sweep(config)
        for found in _sort_out(config, args.config, others=args.others):
            failed = _remove(found)
            errors += failed
            print(f"removed {found.key}" + " in part" * bool(failed), flush=True)
    if errors:
        raise UserError(
            f"{len(errors)} files or folders could not be removed; the first: {errors[0]}",
            where=out,
            fix="See to the cause and call it again",
        )
    return 0


def _sort_out(config: Config, file: Path, *, others: bool) -> list[Found]:
    """What may be removed; prints it, and what stays."""
    own = dict.fromkeys(keys(config), str(file))
    claimed, resumed = (own, resumable(config)) if others else claims(config, file)
    runs, unknown = of_runs(config)
    free = [found for found in runs if found.key not in claimed]
    busy = [found for found in free if found.trains]
    free = [found for found in free if found not in busy]
    resuming = _spare(free, resumed)
    free = [found for found in free if found.paths]
    out, size = Path(config.results) / config.name, sum(found.size for found in free)
    print(f"{out}: {counted(len(free), 'run')} that no config names, {_bytes(size)}")
    _list([(found.key, _bytes(found.size), _where(found)) for found in free])
    foreign = [found for found in runs if found.key in claimed and found.key not in own]
    if foreign:
        print("kept, of other configs (--others):")
        _list([(found.key, _bytes(found.size), claimed[found.key]) for found in foreign])
    if busy:
        print("kept, in training now:")
        _list([(found.key, _bytes(found.size), "") for found in busy])
    if resuming:
        print("kept, checkpoints that a run of now may resume:")
        _list([(str(path),) for path in resuming])
    if unknown:
        print("not known, kept:")
        _list([(str(path),) for path in unknown])
    return free


def _spare(runs: list[Found], resumed: set[tuple[str, str]]) -> list[Path]:
    """Take from runs the checkpoints that others resume; these."""
    spared = []
    for found in runs:
        for path in list(found.paths):
            trained = run_of_checkpoints(path)
            if trained and trained.resumes in resumed:
                found.paths.remove(path)
                spared.append(path)
    return spared


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """No workflow runs in a results folder, and none starts while the block runs.

    Raises:
        UserError: one runs, or the file system has no locks, so that nobody knows.
    """
    path = out / WORKFLOW_LOCK
    with locked(path, myself(), does="runs a workflow or cleans here", seen=look(path)) as taken:
        if taken is None:
            raise UserError(
                "no locks on this file system: a workflow or a training may use what is removed",
                where=out,
                fix="Remove what is listed without --remove by hand, once nothing runs",
            )
        try:
            yield
        finally:
            ends(taken, myself())


def _remove(found: Found) -> list[OSError]:
    """All that there is of a run; why something stays."""
    errors = []
    for path in found.paths:
        try:
            remove(path)
        except OSError as error:
            errors.append(error)
    return errors


def _where(found: Found) -> str:
    """The folders that have something of it."""
    return ", ".join(dict.fromkeys(_folder(path) for path in found.paths))


def _folder(path: Path) -> str:
    made = ("runs", "decode", "score", "errors", "compared", "tracked", "logs", "benchmarks")
    names = (*made, "checkpoints")
    return next(name for name in reversed(path.parts) if name in names)


def _list(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  " + "  ".join(cells).rstrip())


def _bytes(size: int) -> str:
    value, unit = float(size), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit in ("B", "kB") else f"{value:.1f} {unit}"
