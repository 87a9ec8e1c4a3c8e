"""What `hadpsgd doctor` finds: one line each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    level: Literal["ok", "warn", "fail"]
    """fail: the workflow cannot run so; warn: it can, with less than it might have."""
    what: str
    """What was looked at, in a word or two."""
    found: str
    fix: str = ""
    """What to do; of warn and fail."""

    def __str__(self) -> str:
        """Its line."""
        return f"{self.level:<4}  {self.what}: {self.found}{'. ' + self.fix if self.fix else ''}"
