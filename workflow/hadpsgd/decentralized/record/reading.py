"""Records of runs read: whole ones, and what a kill left whole."""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hadpsgd.decentralized.core.events import Event, Join, Mix, Update
from hadpsgd.decentralized.record.entries import (
    BLOCK,
    FOLD,
    FORGET,
    JOIN,
    MIX,
    MIX_AS_PLANNED,
    RATE,
    READABLE,
    UPDATE,
    Entry,
    Fold,
    Forget,
    planned,
)
from hadpsgd.decentralized.record.numbers import Numbers, unzigzag
from hadpsgd.decentralized.topology.mixing import MixingSchedule
from hadpsgd.errors import UserError


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
        return list(_entries(Numbers(content), schedule, header["node"]))
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
    found = sound(content, schedule, node)[0]
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


def sound(content: bytes, schedule: MixingSchedule, node: int) -> tuple[list[Entry], int]:
    """The entries that are whole, and the bytes that they take."""
    entries: list[Entry] = []
    whole = 0
    reader = Numbers(content)
    # a kill may have cut the last one; a host that failed may have left zeros (ValueError)
    with contextlib.suppress(IndexError, struct.error, ValueError):
        for entry in _entries(reader, schedule, node):
            entries.append(entry)
            whole = reader.at
    return entries, whole


def _entries(bytes_: Numbers, schedule: MixingSchedule, node: int) -> Iterator[Entry]:
    version = step = block = 0
    rate = 0.0
    while bytes_.left:
        code = bytes_.byte()
        if code == RATE:
            rate = bytes_.double()
            continue
        if code == FOLD:
            yield Fold()
            continue
        if code == FORGET:
            yield Forget()
            continue
        if code == UPDATE:
            yield Update(step=step, read=version - bytes_.number(), rate=rate)
            step += 1
        elif code == BLOCK:
            read_ = version - bytes_.number()
            block += unzigzag(bytes_.number())
            yield Update(step=step, read=read_, rate=rate, block=block)
            step += 1
        elif code in (MIX, MIX_AS_PLANNED):
            round_, own = bytes_.number(), version - bytes_.number()
            takes = _planned_takes if code == MIX_AS_PLANNED else _takes
            yield Mix(
                round=round_,
                own=own,
                takes=tuple(takes(bytes_, own, planned(schedule, node=node, round_=round_))),
            )
        elif code == JOIN:
            yield Join(source=bytes_.number(), version=bytes_.number())
        else:
            raise ValueError(f"code {code}")
        version += 1


Take = tuple[int, float, int]


def _planned_takes(bytes_: Numbers, own: int, plan: list[tuple[int, float]]) -> Iterator[Take]:
    for j, weight in plan:
        yield j, weight, own + unzigzag(bytes_.number())


def _takes(bytes_: Numbers, own: int, plan: list[tuple[int, float]]) -> Iterator[Take]:  # noqa: ARG001
    for _ in range(bytes_.number()):
        partner = bytes_.number()
        weight = bytes_.double()
        yield partner, weight, bytes_.number()
