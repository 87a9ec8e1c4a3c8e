"""What a results folder has of each run, by its key."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from glob import escape
from pathlib import Path

from hadpsgd.config import Config, load, run_fingerprint, run_key
from hadpsgd.config.stages import KEY
from hadpsgd.errors import UserError
from hadpsgd.locks import look
from hadpsgd.run_folder import LAUNCH_LOCK

CONFIG = "config.yaml"
"""In a run's folder, and in that of its checkpoints."""
_FOLDERS = ("runs", "decode", "lists", "score", "errors", "compared")
"""Each has a folder of every run, named by its key."""
_FILES = (
    ("tracked/[!.]*", "{}.*.json"),
    ("logs/[!.]*", "*.{}"),
    ("logs/[!.]*", "*.{}.log"),
    ("logs/[!.]*/*", "{}.*.log"),
    ("benchmarks/[!.]*", "*.{}.tsv"),
    ("benchmarks/[!.]*", "*.{}.*.tsv"),
)
"""Where they lie, and their names."""
_TRACES = ("tracked/[!.]*", "benchmarks/[!.]*")
"""Only a workflow writes these: what has the same key is of a run."""
_ASIDE = ".removed-"
_CHECKPOINTS = re.compile(r"(.+)-[0-9a-f]{12}")
"""Their folder has the id of the run and a hash that the data decide, too."""


@dataclass
class Found:
    """A run: its key, and all that there is of it."""

    key: str
    paths: list[Path] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(map(_size, self.paths))

    @property
    def trains(self) -> bool:
        """Whether a training, started by hand, has it now."""
        return any(look(path / LAUNCH_LOCK).held for path in self.paths)


def of_runs(config: Config) -> tuple[list[Found], list[Path]]:
    """All runs of the config's results folder, sorted; those of no config, too.

    Also the folders that have a run's name and are not known to be one: copies of the user's, say.
    """
    out = Path(config.results) / config.name
    named = {
        kind: [path for path in sorted((out / kind).glob("[!.]*")) if KEY.fullmatch(path.name)]
        for kind in _FOLDERS
    }
    checkpoints = {
        folder: run_of_checkpoints(folder)
        for folder in sorted((Path(config.results) / "checkpoints" / config.name).glob("[!.]*"))
    }
    files = {(glob, form): sorted(out.glob(glob)) for glob, form in _FILES}
    sure = {path.name for path in named["runs"] if _is_run(path)}
    traces = [p.name for (glob, _), paths in files.items() if glob in _TRACES for p in paths]
    sure |= {key for key in _keys(named) if any(key in _words(name) for name in traces)}
    sure |= {run.key for run in checkpoints.values() if run}
    sure -= {path.name for path in named["runs"] if not _is_run(path)}
    found = {key: Found(key) for key in sure}
    unknown = [folder for folder, run in checkpoints.items() if not (run and run.key in sure)]
    for path in (path for paths in named.values() for path in paths):
        if path.name in found:
            found[path.name].paths.append(path)
        else:
            unknown.append(path)
    for folder, run in checkpoints.items():
        if run and run.key in found:
            found[run.key].paths.append(folder)
    for run_ in found.values():
        for (_, form), paths in files.items():
            pattern = form.format(escape(run_.key))
            run_.paths += [path for path in paths if fnmatchcase(path.name, pattern)]
    return [found[key] for key in sorted(found)], unknown


def _keys(named: dict[str, list[Path]]) -> set[str]:
    return {path.name for paths in named.values() for path in paths}


def _words(name: str) -> set[str]:
    """What may be a key in the name of a file: all that stands between points."""
    parts = name.split(".")
    spans = ((i, j) for i in range(len(parts)) for j in range(i + 1, len(parts) + 1))
    return {".".join(parts[i:j]) for i, j in spans}


def _is_run(folder: Path) -> bool:
    """Whether the config that lies there gives the folder its name."""
    match = KEY.fullmatch(folder.name)
    try:
        return match is not None and run_key(load(folder / CONFIG), match[1]) == folder.name
    except (UserError, OSError):
        return False


@dataclass(frozen=True)
class Trained:
    """Whose checkpoints lie in a folder."""

    key: str
    resumes: tuple[str, str]
    """Id and hash of the settings: a run that has both goes on from them, whatever its key, if its
    examples are the same."""


def run_of_checkpoints(folder: Path) -> Trained | None:
    """By the config that lies there; None where that is not known."""
    match = _CHECKPOINTS.fullmatch(folder.name)
    if match is None:
        return None
    try:
        config = load(folder / CONFIG)
        return Trained(run_key(config, match[1]), (match[1], run_fingerprint(config, match[1])))
    except (UserError, OSError):
        return None


def remove(path: Path) -> None:
    """Remove a file, a link or a folder; a folder under another name, so that none is in part.

    Raises:
        OSError: it cannot be removed; what is left of a folder goes with the next `sweep`.
    """
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    aside = path.with_name(_ASIDE + path.name)
    path.rename(aside)
    shutil.rmtree(aside)


def sweep(config: Config) -> list[OSError]:
    """Remove what former removals left; the errors."""
    out, errors = Path(config.results) / config.name, []
    folders = [*(out / kind for kind in (*_FOLDERS, "logs"))]
    folders.append(Path(config.results) / "checkpoints" / config.name)
    for path in (path for folder in folders for path in folder.glob(f"{_ASIDE}*")):
        try:
            shutil.rmtree(path)
        except OSError as error:
            errors.append(error)
    return errors


def _size(path: Path) -> int:
    if path.is_symlink() or not path.is_dir():
        return _bytes(path)
    return sum(_bytes(Path(root, name)) for root, _, names in os.walk(path) for name in names)


def _bytes(file: Path) -> int:
    try:
        return file.lstat().st_size
    except OSError:  # it has just gone, or nobody may look
        return 0
