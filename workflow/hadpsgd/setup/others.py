"""Other configs that a new one would take something from: folder of data, or name of results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from hadpsgd.config.base import expand
from hadpsgd.config.yaml_text import parsed
from hadpsgd.errors import UserError

ANOTHER_NAME = "Give --name OTHER: config, data and results of their own"

LARGEST = 1 << 20
"""Bytes of a config at most: what is larger is none, and takes long to read."""
RESULTS = Path("results")
"""Of a config that does not say where."""
_NO_PATHS = frozenset({"kind", "case", "recordings"})
"""Keys of `corpus` whose texts are none."""


def check_others(out: Path, *, name: str, data: Path) -> None:
    """No other config beside `out` has this name of results, or a path below the folder `data`.

    Raises:
        UserError: one has.
    """
    for path in sorted(out.absolute().parent.glob("*.yaml")):
        if _is_same(path, out) or not isinstance(config := _content(path), dict):
            continue
        shown = out.parent / path.name
        if any(_is_below(value, data) for value in _texts(config.get("corpus"))):
            raise UserError(f"{shown} uses it", where=data, fix=ANOTHER_NAME)
        results = Path(str(config.get("results", RESULTS)))
        if "corpus" in config and str(config.get("name")) == name and results == RESULTS:
            raise UserError(f"has the name {name}, too", where=shown, fix=ANOTHER_NAME)


def _is_same(path: Path, out: Path) -> bool:
    return path == out.absolute() or (out.exists() and path.exists() and path.samefile(out))


def _content(path: Path) -> Any:
    """None of what is no config."""
    try:
        if not path.is_file() or path.stat().st_size > LARGEST:
            return None
        return parsed(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None


def _texts(section: Any) -> Iterator[str]:
    """All texts in a section that may be paths."""
    if isinstance(section, str):
        yield section
    elif isinstance(section, dict):
        for key, value in section.items():
            if key not in _NO_PATHS:
                yield from _texts(value)


def _is_below(text: str, folder: Path) -> bool:
    try:
        path = Path(expand(text)).resolve()
    except (ValueError, OSError, RuntimeError):  # a variable that is not set; no path
        return False
    return path.is_relative_to(folder.resolve())
