"""What a run has otherwise than the others: sections all of whose keys may be left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import Field, SerializerFunctionWrapHandler, create_model, model_serializer
from typing_extensions import override

from hadpsgd.config.base import Section

S = TypeVar("S", bound=Section)


class Changes(Section):
    """Keys that are given stand for themselves, those that are not (None) for the common ones."""

    section: ClassVar[type[Section]] = Section
    """Whose keys these are."""

    @override
    @classmethod
    def meanings(cls) -> dict[str, str]:
        return cls.section.meanings() | super().meanings()

    @model_serializer(mode="wrap")
    def _given(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in dump(self).items() if value is not None}


def changes_of(section: type[Section]) -> type[Changes]:
    """The section's keys with their types and limits, each of which may be left out."""
    fields: dict[str, Any] = {}
    for name, field in section.model_fields.items():
        kind: Any = field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            kind = changes_of(kind)
        if field.metadata:
            kind = Annotated[(kind, *field.metadata)]
        fields[name] = kind | None, Field(None, json_schema_extra=field.json_schema_extra)
    name = f"{section.__name__}Changes"
    doc = f"{section.__doc__} What is left out is as in the common section."
    made = create_model(name, __base__=Changes, __doc__=doc, **fields)
    made.section = section
    return made


def changed(section: S, changes: Changes | None) -> S:
    """The section with the keys that the changes give, subsections merged key by key."""
    values: dict[str, Any] = {}
    for name in type(section).model_fields:
        common, own = getattr(section, name), getattr(changes, name, None)
        if isinstance(own, Changes):
            own = changed(common, own)
        values[name] = common if own is None else own
    return type(section).model_validate(values)


def given(changes: Changes, names: set[str], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The keys that are given, of these names, subsections as `learning_rate.base`."""
    for name in type(changes).model_fields:
        value = getattr(changes, name)
        if value is None or (names and name not in names):
            continue
        if isinstance(value, Changes):
            yield from given(value, set(), f"{prefix}{name}.")
        else:
            yield prefix + name, value
