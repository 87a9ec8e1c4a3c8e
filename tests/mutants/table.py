"""The faults: one YAML file a room, each fault one place of one file with another text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).parent / "faults"
PACKAGE = Path("workflow/hadpsgd")
_KEYS = {"name", "file", "old", "new", "tests", "survives"}


@dataclass(frozen=True)
class Mutant:
    """One small fault.

    room: name of its YAML file. file: relative to the package. old, new: the text that is there
    exactly once, and what takes its place. tests: what pytest is given. survives: why no test
    notices it, empty where one should.
    """

    room: str
    name: str
    file: Path
    old: str
    new: str
    tests: tuple[str, ...]
    survives: str = ""

    def applied(self, text: str) -> str:
        """The text of the file with the fault.

        Raises:
            ValueError: the old text is not there exactly once.
        """
        found = text.count(self.old)
        if found != 1:
            raise ValueError(
                f"{self.room}: '{self.name}': its text is {found} times in {self.file}"
            )
        return text.replace(self.old, self.new)


def load(folder: Path = FOLDER) -> list[Mutant]:
    """All faults, room by room.

    Raises:
        ValueError: an entry lacks a key or has one that nobody reads; two have one name.
    """
    mutants = [
        _mutant(file, entry)
        for file in sorted(folder.glob("*.yaml"))
        for entry in yaml.safe_load(file.read_text(encoding="utf-8"))
    ]
    names = [mutant.name for mutant in mutants]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"two faults have the name '{twice[0]}'")
    return mutants


def _mutant(file: Path, entry: dict[str, Any]) -> Mutant:
    unknown, missing = entry.keys() - _KEYS, _KEYS - {"survives"} - entry.keys()
    if unknown or missing:
        raise ValueError(f"{file.name}: '{entry.get('name')}': {sorted(unknown | missing)}")
    return Mutant(
        file.stem,
        entry["name"],
        PACKAGE / entry["file"],
        entry["old"],
        entry["new"],
        tuple(f"tests/{test}" for test in entry["tests"].split()),
        entry.get("survives", ""),
    )
