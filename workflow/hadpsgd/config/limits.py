"""Thresholds: a share for all sets, or one for each."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, GetJsonSchemaHandler, RootModel, model_serializer
from pydantic import model_validator as validator

OTHERS = "default"
"""Stands in a mapping for all sets that it does not name."""
_PERTURBED = "_perturbed"


class Limits(RootModel[dict[str, Annotated[float, Field(ge=0, le=1)]]]):
    """A share (0 to 1), or a mapping of sets to shares with `default` for the other sets."""

    model_config = ConfigDict(frozen=True)

    @validator(mode="before")
    @classmethod
    def _one_for_all(cls, value: Any) -> Any:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return {OTHERS: value}
        if not isinstance(value, dict | Limits):
            raise ValueError("a share from 0 to 1, or a mapping of sets to shares")
        return value

    @validator(mode="after")
    def _for_all_others(self) -> Limits:
        if OTHERS not in self.root:
            raise ValueError(f"a mapping of sets needs `{OTHERS}` too, for the other sets")
        return self

    @model_serializer
    def _short(self) -> float | dict[str, float]:
        return self.root[OTHERS] if self.root.keys() == {OTHERS} else self.root

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: GetJsonSchemaHandler) -> Any:
        shares = handler.resolve_ref_schema(handler(core))
        return {
            "description": shares.pop("description"),
            "anyOf": [shares["additionalProperties"], shares | {"required": [OTHERS]}],
            "title": shares.pop("title"),
        }

    @property
    def sets(self) -> frozenset[str]:
        """The sets that have a share of their own."""
        return frozenset(self.root) - {OTHERS}

    def of(self, name: str) -> float:
        """The share of a set; a copy has that of its original."""
        return self.root.get(name.removesuffix(_PERTURBED), self.root[OTHERS])
