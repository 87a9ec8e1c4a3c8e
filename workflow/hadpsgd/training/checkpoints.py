"""Checkpoints on disk: whole or not at all, checked, the last few kept.

A checkpoint is a folder, named by its number, with one part for each super-learner:
`000012/node-3-<checksum>.pt`. It counts once all parts are there.
"""

from __future__ import annotations

import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import torch

from hadpsgd.decentralized.rendezvous import Meeting
from hadpsgd.files import atomic_file, explain_os_errors, sha256

_PART = re.compile(r"node-(\d+)-([0-9a-f]{16})\.pt")


class Checkpoints:
    """The checkpoints of one run.

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
        self.last = max(self._numbers(), default=0)

    def save(self, state: dict[str, Any]) -> None:
        """Write this super-learner's part of the next one (its first member does); old ones go.

        Raises:
            UserError: no space, or no permission.
        """
        place = self.meeting.place
        self.last += 1
        if place.member == 0:
            folder = self.folder / f"{self.last:06d}"
            with explain_os_errors(folder):
                folder.mkdir(exist_ok=True)
            for stale in folder.glob(f"node-{place.node}-*.pt"):
                stale.unlink()
            with atomic_file(folder / f"node-{place.node}.writing") as temporary:
                torch.save(state, temporary)
                name = f"node-{place.node}-{sha256(temporary)[:16]}.pt"
            (folder / f"node-{place.node}.writing").replace(folder / name)
        if place.rank == 0:
            self._remove_old()

    def load(self) -> dict[str, Any] | None:
        """The newest checkpoint that is whole for everybody, this super-learner's part of it.

        A damaged one is reported on stderr and passed over. All ranks must call it.
        """
        good = {number for number in self._numbers() if self._sound(number)}
        self.last = max(self._agreed(good), default=0)
        self._remove_newer()
        return self.part(self.meeting.place.node) if self.last else None

    def part(self, node: int) -> dict[str, Any]:
        """A super-learner's part of the last checkpoint."""
        path = self._parts(self.last)[node]
        return torch.load(path, map_location="cpu", weights_only=True)

    def wait_until_complete(self, seconds: float) -> None:
        """Until all have written their parts of the last checkpoint.

        Raises:
            TimeoutError: names the super-learners that have not.
        """
        deadline = time.monotonic() + seconds
        while not self._complete(self.last):
            if time.monotonic() > deadline:
                there = self._parts(self.last)
                missing = [n for n in range(self.meeting.place.nodes) if n not in there]
                raise TimeoutError(f"super-learners {missing} wrote no last checkpoint")
            time.sleep(0.02)

    def _complete(self, number: int) -> bool:
        return len(self._parts(number)) == self.meeting.place.nodes

    def _numbers(self) -> list[int]:
        return sorted(int(p.name) for p in self.folder.glob("[0-9]" * 6) if p.is_dir())

    def _parts(self, number: int) -> dict[int, Path]:
        files = (self.folder / f"{number:06d}").glob("node-*.pt")
        return {int(m[1]): path for path in files if (m := _PART.fullmatch(path.name))}

    def _sound(self, number: int) -> bool:
        """Complete, and this super-learner's part is what was written."""
        if not self._complete(number):
            return False
        path = self._parts(number)[self.meeting.place.node]
        match = _PART.fullmatch(path.name)
        if match and sha256(path).startswith(match[2]):
            return True
        print(f"warning: {path}: damaged checkpoint, the one before is used", file=sys.stderr)
        return False

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

    def _remove_old(self) -> None:
        whole = [number for number in self._numbers() if self._complete(number)]
        for number in whole[: -self.keep] if len(whole) > self.keep else []:
            shutil.rmtree(self.folder / f"{number:06d}", ignore_errors=True)

    def _remove_newer(self) -> None:
        """Incomplete or damaged ones, which this run will write again."""
        if self.meeting.place.rank == 0:
            for other in self._numbers():
                if other > self.last:
                    shutil.rmtree(self.folder / f"{other:06d}", ignore_errors=True)
