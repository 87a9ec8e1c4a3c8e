"""Grids: one entry of the config stands for many runs, of which a page is made (docs/paper.md)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Literal, get_args

from pydantic import Field, ValidationError, field_validator

from hadpsgd.config.base import DECIDES_NOTHING, Section
from hadpsgd.config.settings import Settings
from hadpsgd.config.training import Injected, Run, short

Part = Literal["batch", "tried", "learners", "stragglers", "why"]
PARTS: tuple[Part, ...] = get_args(Part)


class Grid(Section):
    """Runs that have all of `run` in common, and each combination of the values in `over`."""

    part: Part = Field(json_schema_extra=DECIDES_NOTHING)
    """Part of the page that shows them."""
    run: dict[str, Any] = Field({})
    """Keys of a run, as under `runs`; `decode` is false where it is not given."""
    over: dict[str, list[Any]] = Field({})
    """Key of a run (`batch`, `learning_rate.base`, `injected.slow_learners`) -> its values. A
    value that is the common one under `training` is left out of the run and of its name."""

    @field_validator("run", "over", mode="before")
    @classmethod
    def _names_are_text(cls, value: Any) -> Any:
        """As in a resolved config: learner 1 of `slow_learners` is "1" there."""
        return _with_names(value)


def _with_names(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _with_names(inner) for name, inner in value.items()}
    return [_with_names(inner) for inner in value] if isinstance(value, list) else value


def runs_of(grid: Grid, common: Settings) -> Iterator[Run]:
    """The runs that it stands for.

    Args:
        grid: one of them.
        common: what runs are trained with that say nothing else.

    Raises:
        ValueError: a combination is not a run.
    """
    for values in itertools.product(*grid.over.values()):
        chosen = dict(zip(grid.over, values, strict=True))
        content: dict[str, Any] = {"decode": False, **grid.run}
        for key, value in chosen.items():
            if value != _common(common, key):
                _put(content, key.split("."), value)
        try:
            run = Run.model_validate(content)
        except ValidationError as error:
            fault = error.errors()[0]
            where = ".".join(map(str, fault["loc"]))
            told = fault["msg"].removeprefix("Value error, ")
            shown = ", ".join(f"{key} {value}" for key, value in chosen.items())
            raise ValueError(f"grids, {grid.part}, {shown}: {where} {told}") from None
        yield run if run.name else run.model_copy(update={"name": _name(run, chosen)})


def _common(common: Settings, key: str) -> object:
    """The common value of a dotted key; something that no value is where there is none."""
    found: object = common
    for name in key.split("."):
        found = getattr(found, name, runs_of)
    return found


def _put(content: dict[str, Any], path: list[str], value: object) -> None:
    """Set a key, in copies of the sections on the way to it."""
    *sections, last = path
    for section in sections:
        inner = content.get(section)
        content[section] = content = dict(inner) if isinstance(inner, dict) else {}
    content[last] = value


def _name(run: Run, chosen: dict[str, Any]) -> str:
    """Its id with the trouble put into it, which no id has; nothing where there is none."""
    trouble = [_trouble(key, value) for key, value in chosen.items() if key.startswith("injected.")]
    told = [text for text in trouble if text]
    return "-".join([run.id, *told]) if told else ""


def _trouble(key: str, value: object) -> str:
    """`slow5` of the learners that are five times slower; other keys as ids have them."""
    if value == getattr(Injected(), key.rpartition(".")[2], None):
        return ""
    if isinstance(value, dict):
        return "-".join(f"slow{factor:g}" for factor in value.values())
    return short(key, value)
