"""Records that wait for the store, one folder a run.

`<spool>/<key>/events.jsonl` are events in order, `<spool>/<key>/files/` copies of the artifacts
that they name; they wait for the store in `<spool>/<key>/store`. `<spool>/<key>/run.json` stays:
where in which store the run was written.

Who follows a training holds `<spool>/<key>/.follower` and keeps in `last_word.json` what is to be
said of the run should it die together with training.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import ValidationError

from hadpsgd.errors import UserError
from hadpsgd.files import write_text
from hadpsgd.tracking.events import Artifact, Event, Model, from_json, to_json

LAST_WORD = "last_word.json"
STORE = "store"
PATIENCE_SECONDS = 120.0
"""How long who follows a run waits for the end of who followed it before."""


class Spool:
    """The waiting events of one run."""

    def __init__(self, root: Path, *, key: str, store: str = "") -> None:
        """`root` is the spool folder of a config, `key` names the run in every store."""
        self.key = key
        self._store = store
        self.folder = root / key
        self._events = self.folder / "events.jsonl"
        self._last_word = self.folder / LAST_WORD

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

    def upload(self, send: Callable[[Iterable[Event]], None]) -> None:
        """Send what waits, and the last word on a run that nobody follows any more.

        Raises:
            Exception: whatever `send` raised; everything still waits.
        """
        with self._lock():
            word = [] if self.is_followed() else self._read_last_word()
            send(self._chain(word))
            self._clear()
            if word:
                self.take_back_last_word()

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

    @contextmanager
    def followed(self) -> Iterator[None]:
        """While the block runs, this process follows the run; it waits for another's end first."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = self._follower()
        with contextlib.suppress(Timeout):  # of a file system that cannot tell who has died
            lock.acquire(timeout=PATIENCE_SECONDS)
        try:
            yield
        finally:
            lock.release()

    def is_followed(self) -> bool:
        """Whether a process follows the run."""
        try:
            with self._follower().acquire(timeout=0):
                return False
        except Timeout:
            return True

    def leave_last_word(self, event: Event) -> None:
        """Keep what is to be said of the run if nobody says more; it replaces the one before."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._note_store()
        write_text(self._last_word, to_json(event) + "\n")

    def take_back_last_word(self) -> None:
        """More has been said."""
        self._last_word.unlink(missing_ok=True)

    def _read_last_word(self) -> list[Event]:
        try:
            return [from_json(self._last_word.read_text(encoding="utf-8"))]
        except (FileNotFoundError, ValidationError):
            return []

    def _follower(self) -> FileLock:
        return FileLock(self.folder / ".follower")

    def _lock(self) -> FileLock:
        return FileLock(self.folder / ".lock")

    def _chain(self, events: list[Event]) -> Iterator[Event]:
        yield from self.waiting()
        yield from events

    def _append(self, events: list[Event]) -> None:
        if not events:
            return
        self._note_store()
        self._mend()
        with self._events.open("a", encoding="utf-8") as stream:
            for event in events:
                stream.write(to_json(self._kept(event)) + "\n")
            stream.flush()
            os.fsync(stream.fileno())

    def _note_store(self) -> None:
        file = self.folder / STORE
        if not file.exists() or file.read_text(encoding="utf-8") != self._store:
            write_text(file, self._store)

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


def keys_waiting(root: Path, store: str | None = None) -> list[str]:
    """Keys of the runs of which something waits (for one store), oldest first."""
    events = {file.parent: file.stat().st_mtime for file in root.glob("*/events.jsonl")}
    words = {file.parent: file.stat().st_mtime for file in root.glob(f"*/{LAST_WORD}")}
    left = {f: t for f, t in words.items() if not Spool(root, key=f.name).is_followed()}
    found = left | events
    return [
        folder.name
        for folder in sorted(found, key=found.__getitem__)
        if store is None or _store_of(folder) == store
    ]


def _store_of(folder: Path) -> str | None:
    file = folder / STORE
    return file.read_text(encoding="utf-8") if file.exists() else None
