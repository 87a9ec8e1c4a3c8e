"""How much of a record counts: agreed on when the process that writes it is given up.

A process that is taken for dead may only have stood still (SIGSTOP, a suspended host), at any
place, and go on when others have done its work. So each process, a *life* of its (super-)learner,
writes a file of its own. Whoever goes on without it *closes* that file: it says so in the store
that all processes share, and then looks how long the file is. The first length that is written down
there counts, for everybody and for good.

Who writes looks after it has written, and before anybody hears of it, whether its file is closed.
If not, whoever closes it later finds what was written. If it is, the process ends, and nobody ever
reads what it wrote. So it does not matter where a process stands still, and for how long.

A life that goes on where another one left off begins with a copy of what counts of that one's file.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path

from hadpsgd.decentralized.core.engine import Counted, ExcludedError
from hadpsgd.decentralized.core.stores import Store


def first_file(node: int) -> str:
    """The name of the record of a (super-)learner's first life."""
    return f"node-{node}.bin"


def new_file(first: Path, content: bytes) -> Path:
    """A file that no other life has, nor will have: `first`, or one named after it."""
    first.parent.mkdir(parents=True, exist_ok=True)
    for number in itertools.count():
        path = first.with_suffix(f".{number}{first.suffix}") if number else first
        try:
            with path.open("xb") as stream:
                stream.write(content)
        except FileExistsError:
            continue
        return path
    raise AssertionError


class Lives:
    """The records of one start of a run, as one process sees them.

    Args:
        store: shared by all processes; outlives them.
        folder: of the records.
        before: what counts of a (super-)learner's record of former starts; asked where no process
            of this start has come to begin a life.
    """

    def __init__(
        self, store: Store, folder: Path, before: Callable[[int], Counted | None] = lambda _: None
    ) -> None:
        self.store = store
        self.folder = folder
        self._before = before
        self._known: dict[str, Counted] = {}

    def begin(self, node: int, file: str, *, generation: int, after: str | None) -> None:
        """A life begins: it writes `file` from now on; `generation` is as in `work.State`.

        `after` is the file of the life before, which is closed.

        Raises:
            ExcludedError: others have come in its place already.
        """
        said, lives = self._of(node)
        if (lives[-1][1] if lives else None) != after:
            raise excluded(node)
        told = json.dumps([*lives, (generation, file)])
        if self.store.compare_set(_lives(node), said, told).decode() != told:
            raise excluded(node)

    def counted(self, node: int, *, until: int | None = None) -> Counted | None:
        """What counts of the last life of a generation up to `until`, which is over: close it.

        None: there was no life.
        """
        _, lives = self._of(node)
        if not lives and (before := self._before(node)) is not None:
            self._fix(before.file, before.length)
            self.store.compare_set(_lives(node), "", json.dumps([(0, before.file)]))
            _, lives = self._of(node)  # its first life of this start, if that has come meanwhile
        files = [file for generation, file in lives if until is None or generation <= until]
        return self._close(files[-1]) if files else None

    def is_closed(self, file: str) -> bool:
        """Whether the life that writes it was given up."""
        return self.store.check([_closing(file)])

    def _close(self, file: str) -> Counted:
        if file not in self._known:
            self.store.set(_closing(file), "")
            with (self.folder / file).open("rb") as stream:  # a network's file: asks anew
                found = stream.seek(0, os.SEEK_END)
            self._known[file] = Counted(file=file, length=self._fix(file, found))
        return self._known[file]

    def _fix(self, file: str, length: int) -> int:
        """What counts of it: so much, unless somebody said so before."""
        return int(self.store.compare_set(f"length/{file}", "", str(length)))

    def _of(self, node: int) -> tuple[str, list[tuple[int, str]]]:
        """(generation, file) of all lives so far, as the store has it and read."""
        key = _lives(node)
        said = self.store.get(key).decode() if self.store.check([key]) else ""
        return said, [(generation, file) for generation, file in json.loads(said or "[]")]


def excluded(node: int) -> ExcludedError:
    """What a life meets that goes on after it was given up."""
    return ExcludedError(f"the others took (super-)learner {node} for dead and go on without")


def _lives(node: int) -> str:
    return f"lives/{node}"


def _closing(file: str) -> str:
    return f"closed/{file}"
