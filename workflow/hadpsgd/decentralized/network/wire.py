"""What travels between learners: a header of fixed size, then perhaps weights."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum

from hadpsgd.decentralized.core.note import Note

_FORMAT = struct.Struct("<4sBxHIQQQQQQqq32s")
_MAGIC = b"hADP"
SIZE = _FORMAT.size


class Kind(IntEnum):
    """What a message is."""

    HELLO = 1
    """First on a connection: who connects."""
    WEIGHTS = 2
    """A snapshot for a round; the weights follow."""
    RECEIVED = 3
    """The partner's snapshot of the round has arrived whole."""
    BEGIN = 4
    """To another member of the super-learner: the round begins."""
    ASK = 5
    """Will you exchange with me, under this number?"""
    AGREED = 6
    """To who asked: yes, now."""
    REFUSED = 7
    """To who asked: no, I am busy."""
    READY = 8
    """To who was refused: ask again."""
    QUIET = 9
    """I begin no exchange before the pause of the note's number; what it tells is in the note."""
    FINISHED = 10
    """My last gradient is applied."""
    SHELF = 11
    """You may read my memory: process (`round`), descriptor (`turn`), number (`at`), bytes."""
    SEEN = 12
    """I do."""
    PLACED = 13
    """A snapshot for a round, which lies at `at` in my memory in this `turn`."""


TALK = frozenset({Kind.ASK, Kind.AGREED, Kind.REFUSED, Kind.READY, Kind.QUIET, Kind.FINISHED})
"""Messages by which two learners find each other; they belong to no round under way."""

SHELVES = frozenset({Kind.SHELF, Kind.SEEN})
"""Messages between the two ends of a connection."""


@dataclass(frozen=True, kw_only=True)
class Header:
    """The fixed part of a message."""

    kind: Kind
    sender: int
    round: int = 0
    nbytes: int = 0
    at: int = 0
    turn: int = 0
    epoch: int = 0
    """Membership that the sender knows."""
    note: Note = field(default_factory=Note)

    def pack(self) -> bytes:
        """SIZE bytes."""
        note = self.note
        return _FORMAT.pack(
            _MAGIC,
            self.kind,
            self.sender,
            self.epoch,
            self.round,
            self.nbytes,
            self.at,
            self.turn,
            note.version,
            note.steps,
            note.pause,
            note.stop,
            note.finished.to_bytes(32, "little"),
        )

    @classmethod
    def unpack(cls, data: bytes | bytearray) -> Header:
        """Inverse of `pack`; raises ConnectionError for anything else."""
        magic, kind, sender, epoch, round_, nbytes, at, turn, *told = _FORMAT.unpack(data)
        version, steps, pause, stop, finished = told
        if magic != _MAGIC or kind not in Kind.__members__.values():
            raise ConnectionError("not a message of a learner")
        note = Note(
            version=version,
            steps=steps,
            pause=pause,
            stop=stop,
            finished=int.from_bytes(finished, "little"),
        )
        return cls(
            kind=Kind(kind),
            sender=sender,
            round=round_,
            nbytes=nbytes,
            at=at,
            turn=turn,
            epoch=epoch,
            note=note,
        )
