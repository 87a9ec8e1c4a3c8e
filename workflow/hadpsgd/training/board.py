"""A notice board for the ranks' small numbers: written and read without waiting for anybody."""

from __future__ import annotations

import json
from typing import Any

from typing_extensions import override

from hadpsgd.decentralized.network.rendezvous import Meeting


class Board:
    """Notices by name and rank, in the store that the ranks share."""

    def __init__(self, meeting: Meeting) -> None:
        self.world = meeting.place.world
        self.rank = meeting.place.rank
        self._store = meeting.prefixed("board") if meeting.store is not None else None
        self._own: dict[str, Any] = {}

    def post(self, name: str, value: Any) -> None:
        """Put up this rank's notice, in place of its former one."""
        self._own[name] = value
        if self._store is not None:
            self._store.set(f"{name}/{self.rank}", json.dumps(value))

    def read(self, name: str) -> dict[int, Any]:
        """All notices of that name by rank, as far as they are there."""
        if self._store is None:
            return {self.rank: self._own[name]} if name in self._own else {}
        keys = [f"{name}/{rank}" for rank in range(self.world)]
        there = [rank for rank, key in enumerate(keys) if self._store.check([key])]
        return {rank: json.loads(self._store.get(keys[rank])) for rank in there}


class SharedBoard(Board):
    """The board of learners of one process."""

    def __init__(self, rank: int, notices: dict[str, dict[int, Any]]) -> None:
        """`notices` are those of all, by name and rank."""
        self.rank = rank
        self._notices = notices

    @override
    def post(self, name: str, value: Any) -> None:
        """As that of `Board`."""
        self._notices.setdefault(name, {})[self.rank] = value

    @override
    def read(self, name: str) -> dict[int, Any]:
        """As that of `Board`."""
        return dict(sorted(self._notices.get(name, {}).items()))
