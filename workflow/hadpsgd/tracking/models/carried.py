"""The modules of this package that a module needs, so that they can travel with a model."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from pathlib import Path

import hadpsgd

_TOP = Path(hadpsgd.__file__).parent


def carry(module: str, folder: Path) -> Path:
    """Copy a module and all that it imports of this package to `folder/hadpsgd`, which is returned.

    Imports inside functions count. Those for type checkers do not, nor what a package's
    `__getattr__` loads when it is asked for.
    """
    for file in needed(module).values():
        target = folder / _TOP.name / file.relative_to(_TOP)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    return folder / _TOP.name


def needed(module: str) -> dict[str, Path]:
    """Files by the names of their modules: the module, its packages, and what they import."""
    found: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        file = _file(name)
        if name in found or file is None:
            continue
        found[name] = file
        waiting.append(name.rpartition(".")[0])
        waiting.extend(_imported(ast.parse(file.read_text(encoding="utf-8"))))
    return found


def _file(name: str) -> Path | None:
    """Of a module of this package; None of any other name."""
    top, *parts = name.split(".")
    if top != _TOP.name:
        return None
    path = _TOP.joinpath(*parts)
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return file if file.is_file() else None


def _imported(tree: ast.AST) -> Iterator[str]:
    """Names that may be modules."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif not _is_left_out(node):
            yield from _imported(node)


def _is_left_out(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    return isinstance(node, ast.FunctionDef) and node.name == "__getattr__"
