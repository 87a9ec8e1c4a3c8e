"""What every section of the configuration shares."""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Final, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic.fields import FieldInfo
from typing_extensions import override

_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


LARGEST: Final = 2**31 - 1
"""No key that counts something takes more: what computes with it holds such numbers in 32 bits."""
DECIDES_NOTHING: Final[dict[str, Any]] = {"decides": "nothing"}
"""`json_schema_extra` of a key that decides no bit of any result: processes, thresholds, places.
No fingerprint has it, so that a change of it makes nothing again."""
DECIDES_IF_GIVEN: Final[dict[str, Any]] = {"decides": "where it is not its default"}
"""Of a key that adds something to a result: at its default no fingerprint has it, so that what was
made before there was such a key is not made again."""


def _once(values: list[float]) -> list[float]:
    twice = [f"{value:g}" for value in values if values.count(value) > 1]
    if twice:
        raise ValueError(f"{twice[0]} is listed twice; once is enough")
    return values


EachOnce = AfterValidator(_once)
"""Of a list whose values are tried, each once: of two alike the middle would lie elsewhere."""


class Section(BaseModel):
    """A section: unknown keys are refused, values are frozen, docstrings document the keys.

    They are read when a schema is asked for: pydantic would read them whenever a command begins.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        protected_namespaces=(),
        allow_inf_nan=False,
    )

    @model_validator(mode="before")
    @classmethod
    def _numbers(cls, given: Any) -> Any:
        """`misfit: yes` is not 1; and nothing is counted in more than 32 bits."""
        for name, value in given.items() if isinstance(given, dict) else ():
            if not (_truth(value) or _excess(value)):
                continue  # next to all: what a key may be takes longer to see
            kind = cls.model_fields[name].annotation if name in cls.model_fields else None
            number = _may_be(kind, int, float) and not _may_be(kind, bool)
            if number and _truth(value):
                raise ValueError(f"{name} should be a number, not yes or no")
            if number and not _may_be(kind, float) and _excess(value):
                raise ValueError(f"{name} should be at most {LARGEST}")
        return given

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: GetJsonSchemaHandler) -> Any:
        made = handler(core)
        keys = handler.resolve_ref_schema(made).get("properties", {})
        for name, text in cls.meanings().items():
            if name in keys:
                keys[name].setdefault("description", text)
        return made

    @classmethod
    def meanings(cls) -> dict[str, str]:
        """What docstrings say of the keys."""
        found: dict[str, str] = {}
        for base in reversed(cls.__mro__):
            if issubclass(base, Section):
                found |= _docstrings(base.__module__).get(base.__name__, {})
        return found

    @override
    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's, which takes along what was cached of the old values."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied


@cache
def _docstrings(module: str) -> dict[str, dict[str, str]]:
    """Class -> attribute -> the string below it."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {
        section.name: {
            key.target.id: inspect.cleandoc(below.value.value)
            for key, below in pairwise(section.body)
            if isinstance(key, ast.AnnAssign)
            and isinstance(key.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        }
        for section in tree.body
        if isinstance(section, ast.ClassDef)
    }


def _truth(value: Any) -> bool:
    """Whether it, or what it lists, is true or false."""
    return any(isinstance(each, bool) for each in (value if isinstance(value, list) else [value]))


def _excess(value: Any) -> bool:
    """Whether it, or what it lists, is too large a whole number."""
    listed = value if isinstance(value, list) else [value]
    return any(isinstance(each, int) and abs(each) > LARGEST for each in listed)


def _may_be(kind: Any, *others: type) -> bool:
    """Whether a type is one of others, or made up of one among others."""
    return kind in others or any(_may_be(part, *others) for part in get_args(kind))


def deciding(value: Any) -> Any:
    """A section, or what one holds, as plain values, without the keys that decide nothing."""
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        return {
            name: deciding(getattr(value, name))
            for name, field in fields.items()
            if _decides(field, getattr(value, name))
        }
    if isinstance(value, (list, tuple)):
        return [deciding(item) for item in value]
    if isinstance(value, dict):
        return {str(key): deciding(item) for key, item in value.items()}
    return value


def _decides(field: FieldInfo, value: Any) -> bool:
    if field.json_schema_extra == DECIDES_IF_GIVEN:
        return value != field.default
    return field.json_schema_extra != DECIDES_NOTHING


def off_default(section: Section, *names: str) -> list[str]:
    """Those of some keys that are not at their defaults. A key that is given at its default is as
    one that is left out: resolved configs have them all."""
    fields = type(section).model_fields
    return [name for name in names if getattr(section, name) != fields[name].default]


def expand(text: str) -> str:
    """Replace `${NAME:-default}` by the environment variable or its default."""

    def value(match: re.Match[str]) -> str:
        name, default = match.groups()
        found = os.environ.get(name, default)
        if found is None:
            raise ValueError(f"environment variable {name} is not set and has no default")
        return found

    return _VARIABLE.sub(value, text)


PathText = Annotated[str, AfterValidator(expand)]
"""A path, relative to the folder in which the workflow runs; `${NAME:-default}` is expanded."""
