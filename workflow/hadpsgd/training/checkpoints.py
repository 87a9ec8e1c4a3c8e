"""Checkpoints as the ranks of a run write and find them: whole or not at all, the last few kept.

Training stands still while a part is copied, not while it is written: a thread does that. `saved`
has what lies on disk.
"""

from __future__ import annotations

import copy
import itertools
import shutil
import sys
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hadpsgd.decentralized.core.engine import Counted, Engine
from hadpsgd.decentralized.network.rendezvous import Meeting
from hadpsgd.files import atomic_file, explain_os_errors, sha256
from hadpsgd.training.parts import Written, remove_before
from hadpsgd.training.saved import Saved, complete, found_in

STARTS = "starts"
"""Folder with a file for each start of the run, named by its number."""


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


def last_start(folder: Path) -> int:
    """The number of the last start of the run so far."""
    return max(int(start.name) for start in (folder / STARTS).iterdir())


def _begin(folder: Path) -> int:
    """The number of a start of the run, which no other start has, nor will have."""
    starts = folder / STARTS
    with explain_os_errors(starts):
        starts.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            with suppress(FileExistsError):
                (starts / str(number)).open("xb").close()
                return number
    raise AssertionError


class Checkpoints:
    """The checkpoints of one run, as its ranks write and find them.

    Args:
        folder: of this run and config alone.
        meeting: who and how many we are.
        keep: complete checkpoints kept.
        start: the number of this start of the run, if it has been taken.
    """

    def __init__(
        self, folder: Path, meeting: Meeting, keep: int, *, start: int | None = None
    ) -> None:
        self.folder = folder
        self.meeting = meeting
        self.keep = keep
        with explain_os_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self.last = Saved(folder)
        self._start = start
        self._writer = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None

    def start(self) -> int:
        """The number of this start of all processes; rank 0 takes it, the others ask."""
        if self._start is None:
            self._start = self._taken()
        return self._start

    def _taken(self) -> int:
        meeting = self.meeting
        if meeting.store is None:
            return _begin(self.folder)
        store = meeting.prefixed("checkpoints")
        if meeting.place.rank == 0 and not meeting.joining:
            store.set("start", str(_begin(self.folder)))
        store.wait(["start"], meeting.timeout)
        return int(store.get("start"))

    def save(self, state: dict[str, Any], engine: Engine) -> None:
        """Begin to write this super-learner's part (its first member does); the leader removes
        old ones. `state` may change as soon as this returns.

        Raises:
            UserError: no space, or no permission; for this part or the one before.
        """
        place = self.meeting.place
        self.settle()
        self.last = Saved(self.folder / engine.moment, self.start())
        if place.member == 0:
            self._writing = self._writer.submit(
                self.write, _copied(state), engine.moment, state["living"], leads=engine.leads
            )

    def settle(self) -> None:
        """Until this learner's part is on disk.

        Raises:
            UserError: it could not be written.
        """
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def write(
        self, state: dict[str, Any], moment: str, living: Mapping[int, int], *, leads: bool
    ) -> None:
        """Write this super-learner's part; `living` is as in `Written.by`. Who leads removes old
        checkpoints.

        Raises:
            UserError: no space, or no permission.
        """
        by = Written.by(self.meeting.place.node, start=self.start(), living=living)
        folder = self.folder / moment
        with explain_os_errors(folder):
            folder.mkdir(exist_ok=True)
        for stale in folder.glob(f"{by.process}*.pt"):  # its own, of a pause before the same round
            stale.unlink()
        with atomic_file(folder / f"{by.name}.writing") as temporary:
            with temporary.open(
                "wb"
            ) as stream:  # given a path, torch does not say: the disk is full
                torch.save(state, stream)
            checksum = sha256(temporary)[:16]
        (folder / f"{by.name}.writing").replace(folder / f"{by.name}-{checksum}.pt")
        if leads:
            for old in complete(self.folder)[: -self.keep]:
                shutil.rmtree(old.folder, ignore_errors=True)

    def find(self) -> Saved | None:
        """The newest checkpoint that is sound for everybody.

        A damaged one is reported on stderr and passed over. All ranks must call it.
        """
        node, rank = self.meeting.place.node, self.meeting.place.rank
        if rank == 0:
            self.start()  # before anybody asks for it
        good = {saved.folder.name for saved in complete(self.folder) if saved.sound(node)}
        agreed = self._agreed(good)
        name = max(agreed, default="")
        if rank == 0:
            if not name and complete(self.folder):
                what = "no checkpoint is sound for all ranks: training begins anew"
                print(f"warning: {self.folder}: {what}", file=sys.stderr)
            for saved in found_in(self.folder):
                if saved.folder.name > name:  # incomplete or damaged: this run writes it again
                    remove_before(saved.folder, self.start())
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
