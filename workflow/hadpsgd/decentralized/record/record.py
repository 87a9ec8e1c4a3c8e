"""The record of a run on disk: a few bytes for each update and mix, from which it can be replayed.

One file for each node: a line of JSON (what the run was), then the events in their order. Numbers
are LEB128; versions are written as distances, and a mix whose partners and weights are those of
the schedule is written without them. An update takes 2 bytes, a mix on the ring about 5. Where
learners share their work an update has its block, too, as the distance from the one before: 1 to 3
bytes more. Format 1 knew no blocks, and is read as before.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import torch

from hadpsgd.decentralized.core.events import Event, Join, Mix, Update, blocks_of
from hadpsgd.decentralized.topology.mixing import MixingSchedule
from hadpsgd.errors import UserError

FORMAT = 2
READABLE = (1, 2)
_RATE, _UPDATE, _BLOCK, _MIX, _MIX_AS_PLANNED, _FOLD, _JOIN, _FORGET = b"RUBMmFJE"
_DOUBLE = struct.Struct("<d")


@dataclass(frozen=True)
class Fold:
    """Pending mixes were added to the model outside of an update; makes no version."""


@dataclass(frozen=True)
class Forget:
    """The learner forgot what rounding kept back from its messages; makes no version."""


Entry = Event | Fold | Forget


def planned(schedule: MixingSchedule, *, node: int, round_: int) -> list[tuple[int, float]]:
    """(partner, weight) of a round, without the node itself."""
    takes = schedule.round(round_).partners(node)
    return [(j, takes[j]) for j in schedule.round(round_).receives(node)]


class Recorder:
    """Appends events to a node's file; what is not flushed is lost with the process.

    `begin` a new file, or `resume` one at a checkpoint.

    Args:
        path: the file.
        header: what the run is.
        schedule: of the run.
        node: whose record it is.
    """

    def __init__(
        self, path: Path, header: dict[str, Any], schedule: MixingSchedule, node: int
    ) -> None:
        self.path = path
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
        self.allowed: Callable[[], None] = lambda: None
        """Called before events are written; raises where others go on without this process."""
        self.begun = False
        """Whether the file is there to go on with."""

    def begin(self) -> None:
        """A new file."""
        self.begun = True
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(b"")
        self._buffer += json.dumps(self.header).encode() + b"\n"

    def state(self) -> dict[str, Any]:
        """What `resume` needs, for a checkpoint: all is written, for good, when this returns."""
        length = self.flush(sync=True)
        with self._lock:
            done = torch.tensor(self.done, dtype=torch.int64)
            return {"record_bytes": length, "record_blocks": done, "record_block": self._block}

    def resume(
        self,
        *,
        length: int,
        version: int,
        done: Sequence[int] | None = None,
        block: int | None = None,
    ) -> None:
        """Cut the file to `length` bytes; events after `version` follow.

        `done` and `block` are those of `state`; without them (checkpoints of former versions) the
        record is read.

        Raises:
            UserError: the file is shorter than the checkpoint says.
        """
        found = self.path.stat().st_size if self.path.exists() else 0
        if found < length:
            raise UserError(
                f"the record has {found} bytes, the checkpoint knows {length}",
                where=self.path,
                fix="Remove the run's checkpoint folder and train again",
            )
        os.truncate(self.path, length)
        self._length, self._version = length, version
        if done is None or block is None:
            content = self.path.read_bytes().partition(b"\n")[2]
            done, block = self._blocks(_sound(content, self.schedule, self.node)[0])
        self.done = array("q", done)
        self._block = block
        self.begun = True

    def _blocks(self, entries: list[Entry]) -> tuple[list[int], int]:
        """All, and the one that the next is written as the distance from."""
        learners = self.schedule.learners
        done = shared_blocks(entries, node=self.node, learners=learners, always=True)
        return done, next(reversed(blocks_of(entries)), 0)

    def take_over(self, length: int | None = None) -> tuple[int, int]:
        """Go on where a process that was killed left off; (its updates, its last version).

        `length` is how much of its record counts; None: all.
        """
        content = self.path.read_bytes()[:length] if self.path.exists() else b""
        begin = content.find(b"\n") + 1
        if not begin:  # not even the header was written
            self.begin()
            return 0, 0
        entries, whole = _sound(content[begin:], self.schedule, self.node)
        events = events_of(entries)
        done, block = self._blocks(entries)
        self.resume(length=begin + whole, version=len(events), done=done, block=block)
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
                    self._put(_JOIN, event.source, event.version)
            self._version += 1

    def fold(self) -> None:
        """Pending mixes were added to the model outside of an update."""
        with self._lock:
            self._put(_FOLD)

    def forget(self) -> None:
        """What rounding kept back from messages is forgotten."""
        with self._lock:
            self._put(_FORGET)

    def flush(self, *, sync: bool = False) -> int:
        """Write what there is; the file's length so far.

        What is written outlives the process; with `sync`, the machine.
        """
        with self._lock:
            if self._file is None:
                self._file = self.path.open("ab", buffering=0)
            if self._buffer:
                self.allowed()
                self._file.write(self._buffer)
                self._length += len(self._buffer)
                self._buffer.clear()
            if sync:
                os.fsync(self._file.fileno())
            return self._length

    def _update(self, event: Update) -> None:
        if event.rate != self._rate:
            self._buffer.append(_RATE)
            self._buffer += _DOUBLE.pack(event.rate)
            self._rate = event.rate
        distance = self._version - event.read
        if event.block is None:
            self._put(_UPDATE, distance)
        else:
            self._put(_BLOCK, distance, _zigzag(event.block - self._block))
            self._block = event.block
            self.done.append(event.block)

    def _mix(self, event: Mix) -> None:
        partners = [(j, weight) for j, weight, _ in event.takes]
        distance = self._version - event.own
        if partners == planned(self.schedule, node=self.node, round_=event.round):
            versions = [_zigzag(version - event.own) for _, _, version in event.takes]
            self._put(_MIX_AS_PLANNED, event.round, distance, *versions)
            return
        self._put(_MIX, event.round, distance, len(partners))
        for j, weight, version in event.takes:
            _put_number(self._buffer, j)
            self._buffer += _DOUBLE.pack(weight)
            _put_number(self._buffer, version)

    def _put(self, code: int, *numbers: int) -> None:
        self._buffer.append(code)
        for number in numbers:
            _put_number(self._buffer, number)


def read_header(path: Path) -> dict[str, Any]:
    """What the run was.

    Raises:
        UserError: no record, or not one of ours.
    """
    try:
        with path.open("rb") as stream:
            header = json.loads(stream.readline())
    except FileNotFoundError:
        raise UserError("no record of this run", where=path) from None
    except ValueError:
        raise UserError("not a record of a run", where=path) from None
    if not isinstance(header, dict) or header.get("format") not in READABLE:
        raise UserError("a record of another format", where=path, fix="Replay with that version")
    return header


def read(path: Path, schedule: MixingSchedule, length: int | None = None) -> list[Entry]:
    """All entries of a node's record, in order; of its first `length` bytes if given.

    Raises:
        UserError: no record, or cut in the middle.
    """
    header = read_header(path)
    content = path.read_bytes()[:length]
    content = content[content.index(b"\n") + 1 :]
    try:
        return list(_entries(_Bytes(content), schedule, header["node"]))
    except (IndexError, struct.error, ValueError):
        raise UserError("the record is damaged", where=path) from None


def blocks(
    path: Path, schedule: MixingSchedule, *, node: int, length: int | None = None
) -> list[int]:
    """Blocks of the shared work in a node's record, or in its first `length` bytes.

    As far as it is whole: a kill may have cut it.
    """
    content = path.read_bytes()[:length] if path.exists() else b""
    _, _, content = content.partition(b"\n")
    found = _sound(content, schedule, node)[0]
    return shared_blocks(found, node=node, learners=schedule.learners, always=True)


def events_of(entries: Sequence[Entry]) -> list[Event]:
    """What makes versions: the record as the dense evaluation reads it."""
    return [entry for entry in entries if not isinstance(entry, Fold | Forget)]


def shared_blocks(
    entries: Sequence[Entry], *, node: int, learners: int, always: bool = False
) -> list[int]:
    """The block of every gradient of a node; none at all if it had a share of its own.

    With `always`, gradients of a share of its own (records of format 1) are parts of steps, too.
    """
    updates = [entry for entry in entries if isinstance(entry, Update)]
    if not always and all(update.block is None for update in updates):
        return []
    return [
        update.step * learners + node if update.block is None else update.block
        for update in updates
    ]


def _sound(content: bytes, schedule: MixingSchedule, node: int) -> tuple[list[Entry], int]:
    """The entries that are whole, and the bytes that they take."""
    entries: list[Entry] = []
    whole = 0
    reader = _Bytes(content)
    # a kill may have cut the last one; a host that failed may have left zeros (ValueError)
    with contextlib.suppress(IndexError, struct.error, ValueError):
        for entry in _entries(reader, schedule, node):
            entries.append(entry)
            whole = reader.at
    return entries, whole


def _entries(bytes_: _Bytes, schedule: MixingSchedule, node: int) -> Iterator[Entry]:
    version = step = block = 0
    rate = 0.0
    while bytes_.left:
        code = bytes_.byte()
        if code == _RATE:
            rate = bytes_.double()
            continue
        if code == _FOLD:
            yield Fold()
            continue
        if code == _FORGET:
            yield Forget()
            continue
        if code == _UPDATE:
            yield Update(step=step, read=version - bytes_.number(), rate=rate)
            step += 1
        elif code == _BLOCK:
            read_ = version - bytes_.number()
            block += _unzigzag(bytes_.number())
            yield Update(step=step, read=read_, rate=rate, block=block)
            step += 1
        elif code in (_MIX, _MIX_AS_PLANNED):
            round_, own = bytes_.number(), version - bytes_.number()
            takes = _planned_takes if code == _MIX_AS_PLANNED else _takes
            yield Mix(
                round=round_,
                own=own,
                takes=tuple(takes(bytes_, own, planned(schedule, node=node, round_=round_))),
            )
        elif code == _JOIN:
            yield Join(source=bytes_.number(), version=bytes_.number())
        else:
            raise ValueError(f"code {code}")
        version += 1


Take = tuple[int, float, int]


def _planned_takes(bytes_: _Bytes, own: int, plan: list[tuple[int, float]]) -> Iterator[Take]:
    for j, weight in plan:
        yield j, weight, own + _unzigzag(bytes_.number())


def _takes(bytes_: _Bytes, own: int, plan: list[tuple[int, float]]) -> Iterator[Take]:  # noqa: ARG001
    for _ in range(bytes_.number()):
        partner = bytes_.number()
        weight = bytes_.double()
        yield partner, weight, bytes_.number()


class _Bytes:
    """Reads numbers one after the other."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.at = 0

    @property
    def left(self) -> bool:
        return self.at < len(self._content)

    def byte(self) -> int:
        self.at += 1
        return self._content[self.at - 1]

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def double(self) -> float:
        self.at += 8
        return float(_DOUBLE.unpack_from(self._content, self.at - 8)[0])


def _put_number(buffer: bytearray, number: int) -> None:
    while number > 127:
        buffer.append(128 | number & 127)
        number >>= 7
    buffer.append(number)


def _zigzag(number: int) -> int:
    return 2 * number if number >= 0 else -2 * number - 1


def _unzigzag(number: int) -> int:
    return number >> 1 if number % 2 == 0 else -(number + 1) >> 1
