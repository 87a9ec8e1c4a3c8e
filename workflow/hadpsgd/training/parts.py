"""A part of a checkpoint: one file, whose name says who wrote it.

`node-3.1.0-of-0f-<checksum>.pt` is of super-learner 3. 1 is the number of the start of all
processes, 0 the generation of the one that wrote it (as in `core/words.State`), 0f the bits of the
living. Where processes came later, a hash of the generations of the living follows.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from hadpsgd.files import DAMAGED_ARRAYS

_PART = re.compile(
    r"node-(\d+)(?:\.(\d+)\.(\d+))?-of-([0-9a-f]+)(\.[0-9a-f]{8})?-([0-9a-f]{16})\.pt"
)
_WRITER = re.compile(r"\.?node-\d+(?:\.(\d+)\.\d+)?-of-.*")
"""The start of who wrote a file, also of one that is half written."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """Who wrote a part, and who lived then, as its name says."""

    node: int
    start: int
    """Of all processes; 0 for former versions, which did not number them."""
    generation: int
    """Of the process."""
    living: int
    """Bits of the super-learners that it knew to live."""
    generations: str
    """Hash of theirs; empty where none came later."""

    @classmethod
    def by(cls, node: int, *, start: int, living: Mapping[int, int]) -> Written:
        """A super-learner's; `living` has those that live, and their generations."""
        text = json.dumps(sorted(living.items()))
        later = "." + hashlib.sha256(text.encode()).hexdigest()[:8] if any(living.values()) else ""
        return cls(
            node=node,
            start=start,
            generation=living[node],
            living=bits(living),
            generations=later,
        )

    @property
    def process(self) -> str:
        """What the names of all that one process writes begin with."""
        return f"node-{self.node}.{self.start}.{self.generation}-of-"

    @property
    def name(self) -> str:
        """Without the checksum."""
        return f"{self.process}{self.living:x}{self.generations}"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One file."""

    path: Path
    by: Written
    checksum: str

    @classmethod
    def named(cls, path: Path) -> Part | None:
        """None: it is not one."""
        match = _PART.fullmatch(path.name)
        if match is None:
            return None
        node, start, generation, living, generations, checksum = match.groups("")
        by = Written(
            node=int(node),
            start=int(start or 0),
            generation=int(generation or 0),
            living=int(living, 16),
            generations=generations,
        )
        return cls(path=path, by=by, checksum=checksum)

    def content(self) -> dict[str, Any]:
        """Its weights are mapped, and not read."""
        part: dict[str, Any] = torch.load(
            self.path, map_location="cpu", weights_only=True, mmap=True
        )
        return part

    def living(self) -> dict[int, int]:
        """The super-learners that its writer knew to live, and their generations."""
        try:
            found: dict[int, int] = self.content()["living"]
        except (*DAMAGED_ARRAYS, UnpicklingError):  # `sound` tells; former versions had none
            return {n: 0 for n in range(self.by.living.bit_length()) if self.by.living >> n & 1}
        return found


def remove_before(folder: Path, start: int) -> None:
    """Remove what starts before that one wrote for a checkpoint, whole or half, and its folder if
    nothing else is there.

    Who does so late removes nothing of a start after its own.
    """
    for path in folder.glob("*"):
        match = _WRITER.fullmatch(path.name)
        if match and int(match[1] or 0) < start:
            path.unlink(missing_ok=True)
    with suppress(OSError):  # others' are there, or it is gone
        folder.rmdir()


def bits(nodes: Iterable[int]) -> int:
    """A number that has a bit for each."""
    return sum(1 << node for node in nodes)
