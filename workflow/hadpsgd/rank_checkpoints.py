"""Checkpoints of all ranks, counted: each rank writes a part of its own.

They are those of `training/checkpoints`, with ranks in place of super-learners: a process of a
former start changes nothing that a later one wrote.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from hadpsgd.decentralized.core.place import Place
from hadpsgd.decentralized.network.rendezvous import Meeting
from hadpsgd.training import checkpoints
from hadpsgd.training.parts import remove_before
from hadpsgd.training.saved import Saved, found_in

KEPT = 2
"""Complete ones: a damaged one is passed over."""


class Checkpoints:
    """Of one run, seen by one rank; the folder is shared by all."""

    def __init__(self, folder: Path, meeting: Meeting) -> None:
        place = Place(rank=meeting.place.rank, world=meeting.place.world)
        self.folder = folder
        self._files = checkpoints.Checkpoints(folder, replace(meeting, place=place), KEPT)
        self._rank, self._all = place.rank, dict.fromkeys(range(place.world), 0)

    def newest(self) -> tuple[int, dict[str, Any]] | None:
        """The number of the last one that is sound for all ranks, and this rank's part of it in the
        host's memory.

        A damaged one is reported on stderr and passed over. All ranks call it, before they write.
        """
        saved = self._files.find()
        return None if saved is None else (_number(saved), saved.load(self._rank))

    def save(self, number: int, state: dict[str, Any]) -> None:
        """Write this rank's part.

        Raises:
            UserError: no space, or no permission.
        """
        self._files.write(state, f"{number:09d}", self._all, leads=self._rank == 0)

    def clear(self) -> None:
        """The run is done: remove all of them, but none that a later start wrote."""
        start = self._files.start()
        for saved in found_in(self.folder):
            remove_before(saved.folder, start + 1)
        if start == checkpoints.last_start(self.folder):
            shutil.rmtree(self.folder, ignore_errors=True)


def _number(saved: Saved) -> int:
    return int(saved.folder.name)
