"""Checkpoints on disk: whole or not at all, checked, the last few kept.

A checkpoint is a folder, named by its moment (rounds, steps), with one part for each super-learner
that lived: `000000120-000000000/node-3-of-0f-<checksum>.pt`, 0f the bits of the living. It counts
once all their parts are there.

Training stands still while a part is copied, not while it is written: a thread does that.
"""

from __future__ import annotations

import copy
import re
import shutil
import sys
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadpsgd.decentralized.core.engine import Counted, Engine
from hadpsgd.decentralized.network.rendezvous import Meeting
from hadpsgd.decentralized.record.lives import first_file
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_file, explain_os_errors, sha256

_PART = re.compile(r"node-(\d+)-of-([0-9a-f]+)-([0-9a-f]{16})\.pt")
_MOMENT = "[0-9]" * 9 + "-" + "[0-9]" * 9


@dataclass(frozen=True)
class Saved:
    """One checkpoint."""

    folder: Path

    def parts(self) -> dict[int, Path]:
        """Files by super-learner; none as long as one is missing."""
        groups: dict[int, dict[int, Path]] = {}
        for node, (living, path) in self._files().items():
            groups.setdefault(living, {})[node] = path
        whole = [parts for living, parts in groups.items() if _bits(parts) == living]
        # one that lived through more of the run holds more
        return max(whole, key=len, default={}) or self._of_those_left()

    def _of_those_left(self) -> dict[int, Path]:
        """Parts of learners one of which died while they wrote them: some knew it, some did not."""
        files = self._files()
        left = reduce(and_, (living for living, _ in files.values()), -1)
        parts = {node: path for node, (_, path) in files.items() if left >> node & 1}
        return parts if parts and _bits(parts) == left else {}

    def _files(self) -> dict[int, tuple[int, Path]]:
        """Super-learner -> (bits of those that it knew to live, its part)."""
        found = {}
        for path in self.folder.glob("node-*.pt"):
            if match := _PART.fullmatch(path.name):
                found[int(match[1])] = int(match[2], 16), path
        return found

    def sound(self, node: int) -> bool:
        """Whether a super-learner's part is what was written; a damaged one is reported."""
        path = self.parts().get(node)
        if path is None:
            return True  # it was dead
        match = _PART.fullmatch(path.name)
        if match and sha256(path).startswith(match[3]):
            return True
        print(f"warning: {path}: damaged checkpoint, the one before is used", file=sys.stderr)
        return False

    def load(self, node: int) -> dict[str, Any]:
        """A super-learner's part."""
        return torch.load(self.parts()[node], map_location="cpu", weights_only=True)

    def records(self) -> dict[int, Counted]:
        """What counts of every super-learner's record, of those of the dead, too.

        One that died after the others had come to a stand, and before it wrote its part, is among
        the dead of those that wrote theirs later.
        """
        records: dict[int, Counted] = {}
        dead: dict[int, Counted] = {}
        for node, (_, path) in self._files().items():
            records[node], others = _records(path, node)
            dead |= others
        return dead | records

    def blocks_done(self) -> dict[int, NDArray[np.int64]]:
        """Blocks of the shared work in the super-learners' records; not those of the dead, nor of
        parts that former versions wrote.
        """
        found = {}
        for node, path in self.parts().items():
            part = _part(path)
            if "record_blocks" in part:
                found[node] = part["record_blocks"].numpy().copy()
        return found

    def epochs(self) -> dict[int, dict[int, int]]:
        """Super-learner -> epoch -> the version of the weights that it kept at its end."""
        return {node: _part(path).get("epochs", {}) for node, path in self.parts().items()}

    def enough(self) -> bool:
        """Whether it is of a training that ended early; any learner may have heard of it first."""
        return any(_part(path).get("enough", False) for path in self.parts().values())

    def steps(self) -> int:
        """Updates of a learner, in the mean."""
        steps = [_part(path)["steps"] for path in self.parts().values()]
        return sum(steps) // len(steps)

    def source(self, node: int) -> int:
        """Whose part a super-learner goes on from: its own, or a neighbour's if it was dead."""
        parts = self.parts()
        return min(parts, key=lambda other: (other - node) % (max(*parts, node) + 1))


def complete(folder: Path) -> list[Saved]:
    """The checkpoints of which all parts are there, oldest first."""
    return [saved for saved in _all(folder) if saved.parts()]


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


def _all(folder: Path) -> list[Saved]:
    return [Saved(path) for path in sorted(folder.glob(_MOMENT)) if path.is_dir()]


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    """The state, with tensors that nobody else changes."""
    return {
        key: value.detach().clone() if isinstance(value, Tensor) else copy.deepcopy(value)
        for key, value in state.items()
    }


def record_before(folder: Path, meeting: Meeting, node: int) -> Counted | None:
    """What counted of a super-learner's record when all ranks started, as `Checkpoints.find` does.

    Asked by newcomers, too.
    """
    agreed = _sound_for_all(meeting)
    return Saved(folder / max(agreed)).records().get(node) if agreed else None


def _sound_for_all(meeting: Meeting) -> set[str]:
    """Checkpoints that all ranks found sound at their start; waits until they have said so."""
    store, ranks = meeting.prefixed("checkpoints"), [str(r) for r in range(meeting.place.world)]
    store.wait(ranks, meeting.timeout)
    return set.intersection(*(set(store.get(rank).decode().split()) for rank in ranks))


def _part(path: Path) -> dict[str, Any]:
    """A super-learner's part; its weights are mapped, and not read."""
    part: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    return part


def _records(path: Path, node: int) -> tuple[Counted, dict[int, Counted]]:
    """Of a part's own record, and of those of the dead; former versions gave their lengths."""
    part = _part(path)
    own = Counted(file=part.get("record_file", first_file(node)), length=part["record_bytes"])
    dead = {
        other: Counted(file=first_file(other), length=found)
        if isinstance(found, int)
        else Counted(file=found[0], length=found[1])
        for other, found in part["dead"].items()
    }
    return own, dead


def _bits(nodes: Iterable[int]) -> int:
    return sum(1 << node for node in nodes)


class Checkpoints:
    """The checkpoints of one run, as its ranks write and find them.

    Args:
        folder: of this run and config alone.
        meeting: who and how many we are.
        keep: complete checkpoints kept.
    """

    def __init__(self, folder: Path, meeting: Meeting, keep: int) -> None:
        self.folder = folder
        self.meeting = meeting
        self.keep = keep
        with explain_os_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self.last = Saved(folder)
        self._writer = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None

    def save(self, state: dict[str, Any], engine: Engine) -> None:
        """Begin to write this super-learner's part (its first member does); the leader removes
        old ones. `state` may change as soon as this returns.

        Raises:
            UserError: no space, or no permission; for this part or the one before.
        """
        place = self.meeting.place
        self.settle()
        self.last = Saved(self.folder / engine.moment)
        if place.member == 0:
            name = f"node-{place.node}-of-{_bits(engine.alive):x}"
            self._writing = self._writer.submit(
                self._write, _copied(state), name, place.node, self.last.folder, engine.leads
            )

    def settle(self) -> None:
        """Until this learner's part is on disk.

        Raises:
            UserError: it could not be written.
        """
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _write(
        self, state: dict[str, Any], name: str, node: int, folder: Path, leads: bool
    ) -> None:
        with explain_os_errors(folder):
            folder.mkdir(exist_ok=True)
        for stale in folder.glob(f"node-{node}-*.pt"):
            stale.unlink()
        with atomic_file(folder / f"{name}.writing") as temporary:
            torch.save(state, temporary)
            checksum = sha256(temporary)[:16]
        (folder / f"{name}.writing").replace(folder / f"{name}-{checksum}.pt")
        if leads:
            for old in complete(self.folder)[: -self.keep]:
                shutil.rmtree(old.folder, ignore_errors=True)

    def find(self) -> Saved | None:
        """The newest checkpoint that is sound for everybody.

        A damaged one is reported on stderr and passed over. All ranks must call it.
        """
        node, rank = self.meeting.place.node, self.meeting.place.rank
        good = {saved.folder.name for saved in complete(self.folder) if saved.sound(node)}
        agreed = self._agreed(good)
        name = max(agreed, default="")
        if rank == 0:
            for saved in _all(self.folder):
                if saved.folder.name > name:  # incomplete or damaged: this run writes it again
                    shutil.rmtree(saved.folder, ignore_errors=True)
        self.last = Saved(self.folder / name)
        return self.last if agreed else None

    def wait_until_complete(self, seconds: float) -> None:
        """Until all have written their parts of the last checkpoint.

        Raises:
            TimeoutError: some have not.
            UserError: this learner could not.
        """
        self.settle()
        deadline = time.monotonic() + seconds
        while not self.last.parts():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.last.folder}: not all learners wrote their part")
            time.sleep(0.02)

    def _agreed(self, good: set[str]) -> set[str]:
        """Those that are sound for all ranks."""
        if self.meeting.store is None:
            return good
        store = self.meeting.prefixed("checkpoints")
        store.set(str(self.meeting.place.rank), " ".join(sorted(good)))
        return _sound_for_all(self.meeting)
