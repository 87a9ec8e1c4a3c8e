"""Records that wait for the store, one folder a run.

`<spool>/<key>/events.jsonl` are events in order, `<spool>/<key>/files/` copies of the artifacts
that they name. `<spool>/<key>/run.json` stays: where in which store the run was written.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from filelock import FileLock
from pydantic import ValidationError

from hadpsgd.errors import UserError
from hadpsgd.tracking.events import Artifact, Event, Model, from_json, to_json


class Spool:
    """The waiting events of one run."""

    def __init__(self, root: Path, key: str) -> None:
        """`root` is the spool folder of a config, `key` names the run in every store."""
        self.key = key
        self.folder = root / key
        self._events = self.folder / "events.jsonl"

    def deliver(self, events: Iterable[Event], send: Callable[[Iterable[Event]], None]) -> None:
        """Send what waits, then `events`; what `send` refuses waits for another time.

        Raises:
            Exception: whatever `send` raised; the events are in the spool by then.
        """
        events = list(events)
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._lock():
            try:
                send(self._chain(events))
            except Exception:
                self._append(events)
                raise
            self._clear()

    def add(self, events: Iterable[Event]) -> None:
        """Let events wait without trying to send them."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._lock():
            self._append(list(events))

    def waiting(self) -> Iterator[Event]:
        """The waiting events, in order.

        Raises:
            UserError: a line cannot be read (the last, cut by a kill, is dropped by the writer).
        """
        if not self._events.exists():
            return
        with self._events.open(encoding="utf-8") as stream:
            for number, line in enumerate(stream, 1):
                try:
                    yield from_json(line)
                except ValidationError:
                    raise UserError(
                        "not a record",
                        where=f"{self._events}:{number}",
                        fix="Remove the line and upload again",
                    ) from None

    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._events.exists()

    def _lock(self) -> FileLock:
        return FileLock(self.folder / ".lock")

    def _chain(self, events: list[Event]) -> Iterator[Event]:
        yield from self.waiting()
        yield from events

    def _append(self, events: list[Event]) -> None:
        if not events:
            return
        self._mend()
        with self._events.open("a", encoding="utf-8") as stream:
            for event in events:
                stream.write(to_json(self._kept(event)) + "\n")
            stream.flush()
            os.fsync(stream.fileno())

    def _mend(self) -> None:
        """Cut a last line that a kill left half written; its sender sends it again."""
        if not self._events.exists():
            return
        with self._events.open("rb+") as stream:
            content = stream.read()
            if content and not content.endswith(b"\n"):
                stream.truncate(content.rfind(b"\n") + 1)

    def _kept(self, event: Event) -> Event:
        """The event with its file or folder copied into the spool: the original may go."""
        if not isinstance(event, Artifact | Model):
            return event
        source = Path(event.path)
        if source.is_relative_to(self.folder.absolute()) or not source.exists():
            return event
        subfolder = event.folder if isinstance(event, Artifact) else "model"
        target = (self.folder / "files" / subfolder / source.name).absolute()
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, target)
        return event.model_copy(update={"path": str(target)})

    def _clear(self) -> None:
        self._events.unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.folder / "files")


def keys_waiting(root: Path) -> list[str]:
    """Keys of the runs of which something waits, oldest first."""
    files = sorted(root.glob("*/events.jsonl"), key=lambda file: file.stat().st_mtime)
    return [file.parent.name for file in files]
