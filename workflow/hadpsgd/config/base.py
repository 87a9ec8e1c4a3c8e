"""What every section of the configuration shares."""

from __future__ import annotations

import os
import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


class Section(BaseModel):
    """A section: unknown keys are refused, values are frozen, docstrings document the keys."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, protected_namespaces=()
    )


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
