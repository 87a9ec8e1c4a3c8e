"""The record of a run on disk: a few bytes for each update and mix, from which it can be replayed.

One file for each process that writes (see `lives`): a line of JSON (what the run was), then the
events in their order. Numbers are LEB128; versions are written as distances, and a mix whose
partners and weights are those of the schedule is written without them. An update takes 2 bytes, a
mix on the ring about 5. Where learners share their work an update has its block, too, as the
distance from the one before: 1 to 3 bytes more. Format 1 knew no blocks, and is read as before.
"""

from __future__ import annotations

import json
import os
import threading
from array import array
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from typing import Any

import torch

from hadpsgd.decentralized.core.engine import Counted
from hadpsgd.decentralized.core.events import Event, Join, Mix, Update, blocks_of
from hadpsgd.decentralized.record.entries import (
    BLOCK,
    FOLD,
    FORGET,
    FORMAT,
    JOIN,
    MIX,
    MIX_AS_PLANNED,
    RATE,
    UPDATE,
    Entry,
    planned,
)
from hadpsgd.decentralized.record.lives import Lives, excluded, new_file
from hadpsgd.decentralized.record.numbers import DOUBLE, put, zigzag
from hadpsgd.decentralized.record.reading import events_of, shared_blocks, sound
from hadpsgd.decentralized.topology.mixing import MixingSchedule
from hadpsgd.errors import UserError


class Recorder:
    """Appends events to a node's record; what is not flushed is lost with the process.

    `begin` a new one, or `resume` one at a checkpoint, or `take_over` what another process left.

    Args:
        path: the file of the node's first life.
        header: what the run is.
        schedule: of the run.
        node: whose record it is.
        lives: where others may go on without this process: it writes a file of its own then, not
            the one that it goes on from.
    """

    def __init__(
        self,
        path: Path,
        header: dict[str, Any],
        schedule: MixingSchedule,
        node: int,
        *,
        lives: Lives | None = None,
    ) -> None:
        self.path = path
        """The file that is written."""
        self.lives = lives
        self._first = path
        self._after: str | None = None
        """The file of the life before this one."""
        self.header = {"format": FORMAT, "node": node} | header
        self.schedule = schedule
        self.node = node
        self._version = self._length = 0
        self._rate: float | None = None
        self._block = 0
        self.done = array("q")
        """Blocks of the shared work in the record, in its order."""
        self._buffer = bytearray()
        self._file: FileIO | None = None
        self._lock = threading.Lock()  # the compute thread adds events, the other one flushes
        self._unchecked = False
        """Whether it is not known yet that what was written counts."""
        self.begun = False
        """Whether the file is there to go on with."""

    def begin(self) -> None:
        """A new file. It says at once what it is: this process may end before its first event."""
        self.begun = True
        header = json.dumps(self.header).encode() + b"\n"
        if self.lives is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_bytes(header)
        else:
            self.path = new_file(self._first, header)
        self._length = len(header)

    def state(self) -> dict[str, Any]:
        """What `resume` needs, for a checkpoint: all is written, for good, when this returns."""
        length = self.flush(sync=True)
        with self._lock:
            done = torch.tensor(self.done, dtype=torch.int64)
            return {
                "record_file": self.path.name,
                "record_bytes": length,
                "record_blocks": done,
                "record_block": self._block,
            }

    def resume(
        self,
        *,
        length: int,
        version: int,
        done: Sequence[int] | None = None,
        block: int | None = None,
        file: str | None = None,
    ) -> None:
        """Go on after the first `length` bytes of `file`; events after `version` follow.

        `done`, `block` and `file` are those of `state`; without the former two (checkpoints of
        former versions) the record is read.

        Raises:
            UserError: the file is shorter than the checkpoint says.
        """
        former = self._first if file is None else self._first.with_name(file)
        found = former.stat().st_size if former.exists() else 0
        if found < length:
            raise UserError(
                f"the record has {found} bytes, the checkpoint knows {length}",
                where=former,
                fix="Remove the run's checkpoint folder and train again",
            )
        if self.lives is None:
            os.truncate(former, length)
            self.path = former
        else:
            self.path = new_file(self._first, former.read_bytes()[:length])
        self._length, self._version = length, version
        if done is None or block is None:
            content = self.path.read_bytes().partition(b"\n")[2]
            done, block = self._blocks(sound(content, self.schedule, self.node)[0])
        self.done = array("q", done)
        self._block = block
        self.begun = True

    def _blocks(self, entries: list[Entry]) -> tuple[list[int], int]:
        """All, and the one that the next is written as the distance from."""
        learners = self.schedule.learners
        done = shared_blocks(entries, node=self.node, learners=learners, always=True)
        return done, next(reversed(blocks_of(entries)), 0)

    def left(self) -> Counted | None:
        """What counts of the record of the process whose place this one takes; it is given up."""
        if self.lives is not None:
            left = self.lives.counted(self.node)
            self._after = left.file if left is not None else None
            return left
        if not self._first.exists():
            return None
        return Counted(file=self._first.name, length=self._first.stat().st_size)

    def enter(self, generation: int) -> None:
        """Before anything is written: be known as the node's life of that generation.

        Raises:
            ExcludedError: another one has taken its place.
        """
        if self.lives is not None:
            self.lives.begin(self.node, self.path.name, generation=generation, after=self._after)

    def take_over(self, left: Counted | None) -> tuple[int, int]:
        """Go on where another process left off; (its updates, its last version)."""
        content = b""
        if left is not None:
            content = self._first.with_name(left.file).read_bytes()[: left.length]
        begin = content.find(b"\n") + 1
        if left is None or not begin:  # not even the header was written
            self.begin()
            return 0, 0
        entries, whole = sound(content[begin:], self.schedule, self.node)
        events = events_of(entries)
        done, block = self._blocks(entries)
        self.resume(
            length=begin + whole, version=len(events), done=done, block=block, file=left.file
        )
        return sum(isinstance(event, Update) for event in events), len(events)

    def event(self, event: Event) -> None:
        """The next event of the node."""
        with self._lock:
            match event:
                case Update():
                    self._update(event)
                case Mix():
                    self._mix(event)
                case Join():
                    self._put(JOIN, event.source, event.version)
            self._version += 1

    def fold(self) -> None:
        """Pending mixes were added to the model outside of an update."""
        with self._lock:
            self._put(FOLD)

    def forget(self) -> None:
        """What rounding kept back from messages is forgotten."""
        with self._lock:
            self._put(FORGET)

    def flush(self, *, sync: bool = False) -> int:
        """Write what there is; the file's length so far.

        What is written outlives the process; with `sync`, the machine.

        Raises:
            ExcludedError: the others go on without this process, and what it wrote may not count.
        """
        with self._lock:
            if self._file is None:
                self._file = self.path.open("ab", buffering=0)
            if self._buffer:
                self._unchecked = True
                self._file.write(self._buffer)
                self._length += len(self._buffer)
                self._buffer.clear()
            if self._unchecked and self.lives and self.lives.is_closed(self.path.name):
                raise excluded(self.node)
            self._unchecked = False
            if sync:
                os.fsync(self._file.fileno())
            return self._length

    def _update(self, event: Update) -> None:
        if event.rate != self._rate:
            self._buffer.append(RATE)
            self._buffer += DOUBLE.pack(event.rate)
            self._rate = event.rate
        distance = self._version - event.read
        if event.block is None:
            self._put(UPDATE, distance)
        else:
            self._put(BLOCK, distance, zigzag(event.block - self._block))
            self._block = event.block
            self.done.append(event.block)

    def _mix(self, event: Mix) -> None:
        partners = [(j, weight) for j, weight, _ in event.takes]
        distance = self._version - event.own
        if partners == planned(self.schedule, node=self.node, round_=event.round):
            versions = [zigzag(version - event.own) for _, _, version in event.takes]
            self._put(MIX_AS_PLANNED, event.round, distance, *versions)
            return
        self._put(MIX, event.round, distance, len(partners))
        for j, weight, version in event.takes:
            put(self._buffer, j)
            self._buffer += DOUBLE.pack(weight)
            put(self._buffer, version)

    def _put(self, code: int, *numbers: int) -> None:
        self._buffer.append(code)
        for number in numbers:
            put(self._buffer, number)
