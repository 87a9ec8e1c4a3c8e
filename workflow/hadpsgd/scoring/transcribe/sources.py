"""The recordings that are to be transcribed, each with a name of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hadpsgd.corpus.stm import is_comment
from hadpsgd.errors import UserError

ENDINGS = (".wav", ".flac", ".sph", ".mp3", ".ogg", ".opus", ".aif", ".aiff", ".au", ".w64")
"""What is taken out of a folder, case aside."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A recording.

    name: below which its results are written, with /; no other one has it, case aside.
    """

    path: Path
    name: str

    @property
    def key(self) -> str:
        """Its name in CTM and STM files, which have no spaces."""
        return "_".join(self.name.split())


def find(given: Sequence[Path]) -> list[Source]:
    """Files, and the recordings in folders, each once.

    A name is the file's without its ending, below the folder that was given; where two would have
    the same one, they have endings and as many folders before them as tell them apart.

    Raises:
        UserError: nothing has one of the names, a folder has no recording, or a name begins as
            comments of CTM files do.
    """
    found: dict[Path, Path] = {}  # by the file itself: its path below what was given
    for path in given:
        if path.is_dir():
            files = [each for each in sorted(path.rglob("*")) if _is_recording(each)]
            if not files:
                what = f"no recording ({', '.join(ENDINGS)})"
                raise UserError(what, where=path, fix="Name files, or another folder")
            for file in files:
                found.setdefault(file.resolve(), file.relative_to(path))
        elif path.exists():
            found.setdefault(path.resolve(), Path(path.name))
        else:
            raise UserError("no such file or folder", where=path)
    names = _names(found)
    for path, name in names.items():
        if is_comment(name):
            what = "lines of CTM files that begin with ;; are comments"
            raise UserError(what, where=path, fix="Rename it")
    return [Source(path=path, name=names[path]) for path in found]


def _is_recording(path: Path) -> bool:
    hidden = path.name.startswith(".")
    return path.suffix.lower() in ENDINGS and path.is_file() and not hidden


def _names(found: dict[Path, Path]) -> dict[Path, str]:
    """A name for each file: the shortest that no other one has, case and spaces aside."""
    names = {path: short.with_suffix("").as_posix() for path, short in found.items()}
    for group in _clashing(names):
        names |= {path: found[path].as_posix() for path in group}
    depths = {path: len(short.parts) for path, short in found.items()}
    while groups := _clashing(names):
        for group in groups:
            if len({path.parent for path in group}) == len(group):
                for path in group:
                    depths[path] += 1
                    names[path] = "/".join(path.parts[1:][-depths[path] :])
            else:  # apart in their case alone: no folder helps
                names |= {path: f"{names[path]}-{n}" for n, path in enumerate(group, 1)}
    return names


def _clashing(names: dict[Path, str]) -> list[list[Path]]:
    """Files that have one name."""
    groups: dict[str, list[Path]] = {}
    for path, name in names.items():
        groups.setdefault("_".join(name.lower().split()), []).append(path)
    return [group for group in groups.values() if len(group) > 1]
