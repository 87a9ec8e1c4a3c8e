"""Where the configs of a results folder's starts come from.

Beside each `configs/HASH.yaml` lies `HASH.from.json`: a list of origins, as several files may say
the same.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hadpsgd.files import write_text


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The config files of a start, what the command line set besides (but for the site), and the
    modules of another workflow that it was."""

    files: list[str]
    settings: dict[str, str] = field(default_factory=dict)
    modules: list[str] = field(default_factory=list)

    @classmethod
    def of_file(cls, file: Path) -> Origin:
        """A start with that file alone."""
        return cls(files=[str(file.resolve())])

    def __str__(self) -> str:
        parts = [*self.files, *(f"{name}={value}" for name, value in self.settings.items())]
        return " ".join([*parts, *(f"module {name}" for name in self.modules)])


def of_workflow(workflow: Any, modules: list[str]) -> Origin:
    """Of a workflow of Snakemake that starts."""
    given = workflow.config_settings.config
    return Origin(
        files=[str(Path(file).resolve()) for file in workflow.configfiles],
        settings={name: str(value) for name, value in given.items() if name != "site"},
        modules=modules,
    )


def read(snapshot: Path) -> list[Origin]:
    """Of a config of a former start; empty where nothing sound is recorded."""
    with suppress(OSError, ValueError, TypeError):
        rows = json.loads(_file(snapshot).read_text(encoding="utf-8"))
        return [Origin(**row) for row in rows]
    return []


def note(snapshot: Path, origin: Origin) -> None:
    """Record one more origin, if it is new.

    Raises:
        UserError: it cannot be written there.
    """
    known = read(snapshot)
    if origin not in known:
        rows = [asdict(each) for each in (*known, origin)]
        write_text(_file(snapshot), json.dumps(rows) + "\n")


def _file(snapshot: Path) -> Path:
    return snapshot.with_suffix(".from.json")
