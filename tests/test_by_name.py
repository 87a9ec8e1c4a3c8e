"""Neighbouring parameters of one type are passed by name: swapped ones would type-check.

A thread count once landed in `allow_pipes` this way, and commands in data were run. mypy finds the
calls; this test finds the definitions that still take such neighbours by position.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "workflow" / "hadpsgd"
FAMILIES = {"int": "number", "float": "number", "bool": "number", "str": "text", "Path": "path"}

IN_READING_ORDER = {
    ("begin", "end"), ("start", "end"), ("first", "last"), ("low", "high"), ("left", "right"),
    ("rows", "columns"), ("rows", "cols"), ("old", "new"), ("then", "now"), ("before", "after"),
    ("ref", "hyp"), ("source", "target"), ("source", "out"), ("source", "folder"),
    ("path", "root"),
}  # fmt: skip
"""Pairs that nobody swaps: time runs forwards, rows come before columns, from before to."""

Parameter = tuple[str, ast.expr | None]


def family(annotation: ast.expr | None) -> str | None:
    """Types that take one another's values: number, text or path; None for all others."""
    if annotation is None:
        return None
    parts = {part.strip() for part in ast.unparse(annotation).strip("'\"").split("|")} - {"None"}
    families = {FAMILIES.get(part) for part in parts}
    if families == {"text", "path"}:
        return "path"
    return families.pop() if len(families) == 1 else None


def by_position(node: ast.AST) -> list[Parameter]:
    """What a function, or the constructor of a dataclass, takes by position."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        if node.name.startswith("_") and node.name != "__init__":
            return []  # its callers stand beside it
        return [(a.arg, a.annotation) for a in (*node.args.posonlyargs, *node.args.args)]
    if not isinstance(node, ast.ClassDef):
        return []
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    made = any("dataclass" in text and "kw_only=True" not in text for text in decorators)
    if not made:
        return []
    return fields(node)


def fields(node: ast.ClassDef) -> list[Parameter]:
    """What the constructor of a dataclass or named tuple takes."""
    return [
        (ast.unparse(item.target), item.annotation)
        for item in node.body
        if isinstance(item, ast.AnnAssign)
        and "ClassVar" not in ast.unparse(item.annotation)
        and not (item.value and "init=False" in ast.unparse(item.value))
    ]


def alike(parameters: list[Parameter]) -> list[str]:
    """Neighbours `a, b` that could be swapped."""
    return [
        f"{name}, {following}"
        for (name, one), (following, other) in pairwise(parameters)
        if family(one) is not None
        and family(one) == family(other)
        and (name, following) not in IN_READING_ORDER
    ]


def faults(source: str) -> Iterator[str]:
    """`line: definition takes a, b by position`, for a file's text."""
    tree = ast.parse(source)
    yield from tuples(tree)
    for outer in ast.walk(tree):
        if not isinstance(outer, ast.Module | ast.ClassDef):
            continue  # a function inside another has its callers beside it
        for node in ast.iter_child_nodes(outer):
            for pair in alike(by_position(node)):
                assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                yield f"{node.lineno}: {node.name} takes {pair} by position"


def tuples(tree: ast.AST) -> Iterator[str]:
    """Calls `A(1, 2)` of a named tuple of this file with such neighbours: it has no keyword-only
    fields, for it is made to be unpacked."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    named = [node for node in classes if "NamedTuple" in map(ast.unparse, node.bases)]
    risky = {node.name for node in named if alike(fields(node))}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in risky and len(node.args) > 1:
            yield f"{node.lineno}: {ast.unparse(node)} by position"


@pytest.mark.parametrize("room", sorted(p.name for p in PACKAGE.iterdir() if p.name[0] != "_"))
def test_neighbours_of_one_type_have_names(room: str) -> None:
    """Mend it with `*` in the function, or `@dataclass(kw_only=True)`."""
    place = PACKAGE / room
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    found = [
        f"{file.relative_to(PACKAGE)}:{fault}"
        for file in files
        for fault in faults(file.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(a: int, b: bool = False): ...", ["1: f takes a, b by position"]),
        ("def f(a: float | None, b: int): ...", ["1: f takes a, b by position"]),
        ("def f(a: Path | str, b: Path): ...", ["1: f takes a, b by position"]),
        ("def f(a: int, *, b: bool = False): ...", []),
        ("def f(a: int, b: str, c: int): ...", []),
        ("def f(start: int, end: int | None): ...", []),
        ("@dataclass(frozen=True)\nclass A:\n    a: str\n    b: str", ["2: A takes a, b"]),
        ("@dataclass(kw_only=True)\nclass A:\n    a: str\n    b: str", []),
        ("class A(NamedTuple):\n    a: float\n    b: int\nA(1, 2)", ["4: A(1, 2) by position"]),
        ("class A(NamedTuple):\n    a: float\n    b: int\nA(a=1, b=2)", []),
    ],
)
def test_the_test(source: str, expected: list[str]) -> None:
    found = list(faults(source))
    assert len(found) == len(expected)
    assert all(fault.startswith(start) for fault, start in zip(found, expected, strict=True))
