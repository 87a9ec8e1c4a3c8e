"""Checkpoints on disk: whole or not at all, checked, the last few kept.

A checkpoint is a folder, named by its number, with one part for each super-learner:
`000012/node-3-<checksum>.pt`. It counts once all parts are there.
"""

from __future__ import annotations

import re
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hadpsgd.decentralized.rendezvous import Meeting
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_file, explain_os_errors, sha256

_PART = re.compile(r"node-(\d+)-([0-9a-f]{16})\.pt")


@dataclass(frozen=True)
class Saved:
    """One checkpoint."""

    folder: Path

    @property
    def number(self) -> int:
        """Checkpoints of a run are counted from 1."""
        return int(self.folder.name)

    def parts(self) -> dict[int, Path]:
        """Files by super-learner, as far as they are there."""
        files = self.folder.glob("node-*.pt")
        return {int(m[1]): path for path in files if (m := _PART.fullmatch(path.name))}

    def sound(self, node: int) -> bool:
        """Whether a super-learner's part is what was written; a damaged one is reported."""
        path = self.parts()[node]
        match = _PART.fullmatch(path.name)
        if match and sha256(path).startswith(match[2]):
            return True
        print(f"warning: {path}: damaged checkpoint, the one before is used", file=sys.stderr)
        return False

    def load(self, node: int) -> dict[str, Any]:
        """A super-learner's part."""
        return torch.load(self.parts()[node], map_location="cpu", weights_only=True)


def complete(folder: Path, nodes: int) -> list[Saved]:
    """The checkpoints of which all parts are there, oldest first."""
    return [saved for saved in _all(folder) if len(saved.parts()) == nodes]


def newest(folder: Path, nodes: int) -> Saved:
    """The newest complete checkpoint whose parts are all sound.

    Raises:
        UserError: there is none.
    """
    for saved in reversed(complete(folder, nodes)):
        if all(saved.sound(node) for node in range(nodes)):
            return saved
    raise UserError("no complete checkpoint", where=folder)


def _all(folder: Path) -> list[Saved]:
    return [Saved(path) for path in sorted(folder.glob("[0-9]" * 6)) if path.is_dir()]


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
        self.last = Saved(folder / "000000")

    def save(self, state: dict[str, Any]) -> None:
        """Write this super-learner's part of the next one (its first member does); old ones go.

        Raises:
            UserError: no space, or no permission.
        """
        place = self.meeting.place
        folder = self.folder / f"{self.last.number + 1:06d}"
        self.last = Saved(folder)
        if place.member == 0:
            with explain_os_errors(folder):
                folder.mkdir(exist_ok=True)
            for stale in folder.glob(f"node-{place.node}-*.pt"):
                stale.unlink()
            with atomic_file(folder / f"node-{place.node}.writing") as temporary:
                torch.save(state, temporary)
                name = f"node-{place.node}-{sha256(temporary)[:16]}.pt"
            (folder / f"node-{place.node}.writing").replace(folder / name)
        if place.rank == 0:
            for old in complete(self.folder, place.nodes)[: -self.keep]:
                shutil.rmtree(old.folder, ignore_errors=True)

    def load(self) -> dict[str, Any] | None:
        """The newest checkpoint that is sound for everybody, this super-learner's part of it.

        A damaged one is reported on stderr and passed over. All ranks must call it.
        """
        place = self.meeting.place
        whole = complete(self.folder, place.nodes)
        number = max(self._agreed({s.number for s in whole if s.sound(place.node)}), default=0)
        self.last = Saved(self.folder / f"{number:06d}")
        if place.rank == 0:
            for saved in _all(self.folder):
                if saved.number > number:  # incomplete or damaged: this run writes it again
                    shutil.rmtree(saved.folder, ignore_errors=True)
        return self.last.load(place.node) if number else None

    def wait_until_complete(self, seconds: float) -> None:
        """Until all have written their parts of the last checkpoint.

        Raises:
            TimeoutError: names the super-learners that have not.
        """
        deadline = time.monotonic() + seconds
        nodes = range(self.meeting.place.nodes)
        while missing := [n for n in nodes if n not in self.last.parts()]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"super-learners {missing} wrote no last checkpoint")
            time.sleep(0.02)

    def _agreed(self, good: set[int]) -> set[int]:
        """Those that are sound for all ranks."""
        if self.meeting.store is None:
            return good
        store = self.meeting.prefixed("checkpoints")
        rank, world = self.meeting.place.rank, self.meeting.place.world
        store.set(str(rank), " ".join(map(str, sorted(good))))
        store.wait([str(r) for r in range(world)], self.meeting.timeout)
        for r in range(world):
            good &= {int(word) for word in store.get(str(r)).decode().split()}
        return good
