"""The engine's rooms import one way."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ENGINE = Path(__file__).resolve().parents[1] / "workflow/hadpsgd/decentralized"
ROOMS = (
    "topology",
    "core",
    "network",
    "record",
    "strategies",
    "elastic",
    "simulated",
    "commands",
)


def _imported(file: Path) -> set[str]:
    """Names of the engine's rooms and modules that `file` imports from."""
    names = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    prefix = "hadpsgd.decentralized."
    return {name.removeprefix(prefix).split(".")[0] for name in names if name.startswith(prefix)}


def test_all_rooms_are_known() -> None:
    there = {path.name for path in ENGINE.iterdir() if path.is_dir() and path.name[0] != "_"}
    assert there == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_before_it(room: str) -> None:
    allowed = set(ROOMS[: ROOMS.index(room) + 1])
    files = sorted((ENGINE / room).glob("*.py"))
    assert files
    for file in files:
        assert _imported(file) <= allowed, file
