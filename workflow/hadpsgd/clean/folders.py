"""What a results folder has of each run, by its key."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from glob import escape
from pathlib import Path

from hadpsgd.config import Config, load, run_key
from hadpsgd.config.stages import KEY
from hadpsgd.errors import UserError
from hadpsgd.locks import look
from hadpsgd.run_folder import LAUNCH_LOCK

_FOLDERS = ("runs", "decode", "score", "errors")
"""Each has a folder of every run, named by its key."""
_FILES = (
    "tracked/{}.*.json",
    "logs/*.{}",
    "logs/*.{}.log",
    "logs/*/{}.*.log",
    "benchmarks/*.{}.tsv",
    "benchmarks/*.{}.*.tsv",
)
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


def of_runs(config: Config) -> list[Found]:
    """All runs of the config's results folder, sorted; those of no config, too."""
    out = Path(config.results) / config.name
    found: dict[str, Found] = {}
    for kind in _FOLDERS:
        for path in sorted((out / kind).glob("*")):
            if KEY.fullmatch(path.name):
                found.setdefault(path.name, Found(path.name)).paths.append(path)
    for folder in sorted((Path(config.results) / "checkpoints" / config.name).glob("*")):
        if key := _key_of_checkpoints(folder):
            found.setdefault(key, Found(key)).paths.append(folder)
    for run in found.values():
        for pattern in _FILES:
            run.paths += sorted(out.glob(pattern.format(escape(run.key))))
    return [found[key] for key in sorted(found)]


def _key_of_checkpoints(folder: Path) -> str:
    """Key of the run, by the config that lies there; empty where that is not known."""
    match = _CHECKPOINTS.fullmatch(folder.name)
    if match is None:
        return ""
    try:
        return run_key(load(folder / "config.yaml"), match[1])
    except UserError:
        return ""


def _size(path: Path) -> int:
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    files = (Path(root, name) for root, _, names in os.walk(path) for name in names)
    return sum(file.lstat().st_size for file in files)
