"""Which keys of the config are read: every attribute of a section, found by the types of mypy."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from inspect import get_annotations
from pathlib import Path
from typing import Any

from mypy import build
from mypy.find_sources import create_source_list
from mypy.nodes import CallExpr, Expression, MemberExpr, NameExpr, StrExpr
from mypy.options import Options
from mypy.types import Instance, Type, UnionType, get_proper_type

from hadpsgd.config import Config
from hadpsgd.config.base import Section
from hadpsgd.config.changes import Changes

Key = tuple[str, str]
"""Class that declares a field, and its name."""
FINGERPRINTS = ("stages.py",)
"""Modules of the config that compare keys with those of before: that is not reading them."""
VALIDATORS = ("field_validator", "model_validator")


def sections(model: type[Section] = Config) -> set[type[Section]]:
    """A section and all below it; not what a run changes of one, which is read in its place."""
    if issubclass(model, Changes):
        return set()
    found = {model}
    for field in model.model_fields.values():
        for inner in _models(field.annotation):
            found |= sections(inner)
    return found


def _models(annotation: Any) -> Iterator[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _models(argument)


def declared(model: type, name: str) -> Key | None:
    """The first class that declares a field, and its name; None for what is no field."""
    bases = [base for base in model.__mro__ if name in get_annotations(base)]
    return (bases[-1].__name__, name) if bases else None


def keys() -> set[Key]:
    """All that a config may have."""
    found = {declared(model, name) for model in sections() for name in model.model_fields}
    return {key for key in found if key}


Place = tuple[int, int, str]
"""Line and column of an attribute, and its name."""


class _Unread(ast.NodeVisitor):
    """Attributes that validators look at, and what else compares keys: that is not reading them."""

    def __init__(self) -> None:
        self.places: set[Place] = set()

    def visit_FunctionDef(self, function: ast.FunctionDef) -> None:
        names = {getattr(getattr(d, "func", d), "id", "") for d in function.decorator_list}
        if names & set(VALIDATORS):
            self.add(function)

    def add(self, tree: ast.AST) -> None:
        """All attributes of a tree."""
        found = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
        self.places |= {(node.lineno, node.col_offset, node.attr) for node in found}


def _not_counted(folder: Path) -> set[Place]:
    unread = _Unread()
    for file in (folder / "config").glob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        (unread.add if file.name in FINGERPRINTS else unread.visit)(tree)
    return unread.places


def _sections_of(type_: Type | None) -> Iterator[type[Section]]:
    proper = get_proper_type(type_)
    if isinstance(proper, UnionType):
        for item in proper.items:
            yield from _sections_of(item)
    elif isinstance(proper, Instance) and proper.type.is_protocol:
        members = set(proper.type.protocol_members)  # any section that has them
        yield from (model for model in sections() if members <= model.model_fields.keys())
    elif isinstance(proper, Instance):
        bases = {base.fullname for base in proper.type.mro}
        if f"{Section.__module__}.{Section.__name__}" in bases:
            yield getattr(import_module(proper.type.module_name), proper.type.name)


def _accesses(expressions: Iterable[Expression]) -> Iterator[tuple[Expression, str | None]]:
    """Whose attribute is read, and its name; None for any."""
    for node in expressions:
        if isinstance(node, MemberExpr):
            yield node.expr, node.name
        elif (
            isinstance(node, CallExpr)
            and isinstance(node.callee, NameExpr)
            and node.callee.name == "getattr"
        ):
            name = node.args[1]
            yield node.args[0], name.value if isinstance(name, StrExpr) else None


def reads_of_code(folder: Path) -> set[Key]:
    """Keys that the package reads, apart from its validators and fingerprints."""
    options = Options()
    options.export_types = options.preserve_asts = True
    options.incremental, options.cache_dir = False, os.devnull
    options.follow_imports = "skip"  # other packages' types cost minutes
    options.check_untyped_defs = True
    types = build.build(create_source_list([str(folder)], options), options).types
    skipped, found = _not_counted(folder), set()
    for owner, name in _accesses(types):
        if name is not None and (owner.line, owner.column, name) in skipped:
            continue
        for model in _sections_of(types.get(owner)):
            for read in model.model_fields if name is None else [name]:
                found.add(declared(model, read))
    return {key for key in found if key}


def reads_of_rules(texts: Iterable[str]) -> set[Key]:
    """Keys that rules read: CONFIG.section.key."""
    found: set[Key] = set()
    for chain in re.findall(r"\bCONFIG((?:\.\w+)+)", "\n".join(texts)):
        models: set[type[Section]] = {Config}
        for name in chain[1:].split("."):
            found |= {key for model in models if (key := declared(model, name))}
            inner = [model.model_fields[name] for model in models if name in model.model_fields]
            models = {each for field in inner for each in _models(field.annotation)}
    return found
