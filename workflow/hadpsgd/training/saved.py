"""Checkpoints as they lie on disk, and which of their parts belong together.

A checkpoint is a folder, named by its moment (rounds and steps, or a number), with one part for
each super-learner that lived: `000000120-000000000/node-3.1.0-of-0f-<checksum>.pt` (`parts`).

It counts once all its parts are there. A process that was given up, or is of a former start, may
have stood still and write its part at any time. So parts of two starts never belong together, and
one that another part knows to be of a former process is no part.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hadpsgd.decentralized.core.engine import Counted
from hadpsgd.decentralized.record.lives import first_file
from hadpsgd.errors import UserError
from hadpsgd.files import sha256
from hadpsgd.training.averaging import Told
from hadpsgd.training.parts import Part, bits

_MOMENT = re.compile(r"\d{9}(-\d{9})?")


@dataclass(frozen=True)
class Saved:
    """One checkpoint."""

    folder: Path
    start: int | None = None
    """The start whose parts count; None: the last one that has written all of them."""

    def parts(self) -> dict[int, Path]:
        """Files by super-learner; none as long as one is missing."""
        return {node: part.path for node, part in self._whole().items()}

    def _whole(self) -> dict[int, Part]:
        files = self._files()
        for start in sorted(files, reverse=True):
            if self.start in (None, start) and (found := _complete(files[start])):
                return found
        return {}

    def _files(self) -> dict[int, list[Part]]:
        """By the start of who wrote them."""
        found: dict[int, list[Part]] = {}
        for path in sorted(self.folder.glob("node-*.pt")):
            if part := Part.named(path):
                found.setdefault(part.by.start, []).append(part)
        return found

    def sound(self, node: int) -> bool:
        """Whether a super-learner's part is what was written; a damaged one is reported."""
        part = self._whole().get(node)
        if part is None or sha256(part.path).startswith(part.checksum):  # None: it was dead
            return True
        print(f"warning: {part.path}: damaged checkpoint, an earlier one is used", file=sys.stderr)
        return False

    def load(self, node: int) -> dict[str, Any]:
        """A super-learner's part."""
        return torch.load(self.parts()[node], map_location="cpu", weights_only=True)

    def records(self) -> dict[int, Counted]:
        """What counts of every super-learner's record, of those of the dead, too.

        One that died after the others had come to a stand, and before it wrote its part, is among
        the dead of those that wrote theirs later.
        """
        whole = self._whole()
        if not whole:
            return {}
        start = next(iter(whole.values())).by.start
        told: dict[int, list[_Said]] = {}
        for part in self._files()[start]:
            for node, said in _said(part):
                told.setdefault(node, []).append(said)
        return {node: _last(found) for node, found in told.items()}

    def blocks_done(self) -> dict[int, NDArray[np.int64]]:
        """Blocks of the shared work in the super-learners' records; not those of the dead, nor of
        parts that former versions wrote.
        """
        found = {}
        for node, part in self._whole().items():
            content = part.content()
            if "record_blocks" in content:
                found[node] = content["record_blocks"].numpy().copy()
        return found

    def epochs(self) -> dict[int, dict[int, Told]]:
        """Super-learner -> epoch -> what is known of the weights that it kept at its end."""
        return {node: part.content().get("epochs", {}) for node, part in self._whole().items()}

    def enough(self) -> bool:
        """Whether it is of a training that ended early; any learner may have heard of it first."""
        return any(part.content().get("enough", False) for part in self._whole().values())

    def steps(self) -> int:
        """Updates of a learner, in the mean."""
        steps = [part.content()["steps"] for part in self._whole().values()]
        return sum(steps) // len(steps)

    def source(self, node: int) -> int:
        """Whose part a super-learner goes on from: its own, or a neighbour's if it was dead."""
        parts = self.parts()
        return min(parts, key=lambda other: (other - node) % (max(*parts, node) + 1))


def found_in(folder: Path) -> list[Saved]:
    """All checkpoints of a run, whole or not, oldest first."""
    paths = (path for path in folder.glob("[0-9]*") if _MOMENT.fullmatch(path.name))
    return [Saved(path) for path in sorted(paths) if path.is_dir()]


def complete(folder: Path) -> list[Saved]:
    """The checkpoints of which all parts are there, oldest first."""
    return [saved for saved in found_in(folder) if saved.parts()]


def newest(folder: Path) -> Saved:
    """As `newest_sound`.

    Raises:
        UserError: there is none.
    """
    saved = newest_sound(folder)
    if saved is None:
        raise UserError("no complete checkpoint", where=folder)
    return saved


def newest_sound(folder: Path) -> Saved | None:
    """The newest complete checkpoint whose parts are all sound."""
    for saved in reversed(complete(folder)):
        if all(saved.sound(node) for node in saved.parts()):
            return saved
    return None


def _complete(files: Sequence[Part]) -> dict[int, Part]:
    """Those of one start that belong together, by super-learner; none as long as one is missing."""
    groups: dict[tuple[int, str], dict[int, Part]] = {}
    for part in files:
        groups.setdefault((part.by.living, part.by.generations), {})[part.by.node] = part
    whole = [found for (living, _), found in groups.items() if bits(found) == living]
    # one that lived through more of the run holds more
    found = max(whole, key=len, default={})
    return found or (_of_those_left(files) if len(groups) > 1 else {})


def _of_those_left(files: Sequence[Part]) -> dict[int, Part]:
    """Parts of learners one of which died while they wrote them, or of which one was replaced: some
    knew it, some did not.
    """
    known = {part.path: part.living() for part in files}
    last: dict[int, int] = {}
    for living in known.values():
        last |= {n: g for n, g in living.items() if g >= last.get(n, 0)}
    files = [part for part in files if part.by.generation >= last.get(part.by.node, 0)]
    left = reduce(and_, (bits(known[part.path]) for part in files), -1)
    parts = {part.by.node: part for part in files if left >> part.by.node & 1}
    return parts if parts and bits(parts) == left else {}


@dataclass(frozen=True, kw_only=True)
class _Said:
    """What a part says of a super-learner's record."""

    record: Counted
    number: int
    """Of the membership then."""
    own: bool
    """Whether it is that super-learner's part."""


def _said(part: Part) -> list[tuple[int, _Said]]:
    """By super-learner: of its own, and of those of the dead.

    Former versions named no files, and gave lengths.
    """
    content, node = part.content(), part.by.node
    own = Counted(file=content.get("record_file", first_file(node)), length=content["record_bytes"])
    number = content.get("membership", 0)
    said = [(node, _Said(record=own, number=number, own=True))]
    for other, found in content["dead"].items():
        file, length = (first_file(other), found) if isinstance(found, int) else found
        record = Counted(file=file, length=length)
        said.append((other, _Said(record=record, number=number, own=False)))
    return said


def _last(told: Sequence[_Said]) -> Counted:
    """What counts of a super-learner's record: of that of its last process; up to its own part, if
    that has written one.
    """
    last = max(told, key=lambda said: (said.number, said.own)).record
    own = [said.record for said in told if said.own and said.record.file == last.file]
    return own[0] if own else last
