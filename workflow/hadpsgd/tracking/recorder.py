"""Sends events of one run; what the store does not take waits in the spool."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable

from hadpsgd.config import Config
from hadpsgd.errors import UserError
from hadpsgd.tracking.events import Event, Finish
from hadpsgd.tracking.failures import NotStoredError
from hadpsgd.tracking.run_ids import known_run
from hadpsgd.tracking.spool import Spool, keys_waiting
from hadpsgd.tracking.store import Store
from hadpsgd.tracking.uri import redacted, spool_folder, tracking_uri

RETRY_SECONDS = 30.0
"""Pause before a store that failed is tried again."""


def warn(message: str) -> None:
    """One line on standard error."""
    print(f"hadpsgd track: {message}", file=sys.stderr, flush=True)


class Connection:
    """The store of a config, connected when first needed; shared by recorders."""

    def __init__(self, config: Config) -> None:
        """Raises UserError where the tracking URI is not one."""
        self.uri = tracking_uri(config)
        self.spool = spool_folder(config)
        self._store: Store | None = None
        self._try_again = 0.0
        self._complained = False

    def store(self) -> Store:
        """The connected store; raises NotStoredError."""
        if self._store is None:
            self._store = Store(self.uri, self.spool)
        return self._store

    def due(self) -> bool:
        """Whether the store may be tried: it works, or its last failure is a while ago."""
        return time.monotonic() >= self._try_again

    def failed(self, error: NotStoredError) -> None:
        """Note a failure; say so once until the store works again."""
        self._store = None
        self._try_again = time.monotonic() + RETRY_SECONDS
        if not self._complained:
            warn(f"{error}. Records wait in {self.spool}; send them by `hadpsgd track --upload`")
        self._complained = True

    def worked(self) -> None:
        """Note a success."""
        self._complained = False


class Recorder:
    """Events of the run `key`, to the store or the spool.

    It never raises for the store's sake. Where the spool cannot be written either (a full disk),
    events are dropped with a warning: `hadpsgd track` sends them again from the results folder.
    """

    def __init__(self, connection: Connection, key: str) -> None:
        """`key` is the run's identity."""
        self.key = key
        self._connection = connection
        self.spool = Spool(connection.spool, key=key, store=redacted(connection.uri))

    def send(self, events: Iterable[Event], *, now: bool = False) -> bool:
        """Send events after those that wait; True where the store has them all.

        `now` tries the store even where it has just failed.
        """
        try:
            if not (now or self._connection.due()):
                self.spool.add(events)
                return False
            self.spool.deliver(events, self._apply)
        except NotStoredError as error:
            self._connection.failed(error)
            return False
        except (OSError, UserError) as error:
            warn(f"{error}; `hadpsgd track` sends what is missing")
            return False
        self._connection.worked()
        return True

    def announce(self, events: Iterable[Event], last_word: Finish) -> None:
        """Let a run that the store does not know wait in the spool, its end included."""
        try:
            if self.spool.is_empty() and not known_run(
                self._connection.spool, key=self.key, uri=self._connection.uri
            ):
                self.spool.add(events)
            self.spool.leave_last_word(last_word)
        except (OSError, UserError) as error:
            warn(f"{error}; `hadpsgd track` sends what is missing")

    def leave_last_word(self, last_word: Finish) -> None:
        """Keep what is to be said of the run if nobody says more."""
        with contextlib.suppress(OSError):  # then `hadpsgd track` does not know how it ended
            self.spool.leave_last_word(last_word)

    def upload(self) -> None:
        """Send what waits; raises NotStoredError."""
        self.spool.upload(self._apply)

    @property
    def _apply(self) -> Callable[[Iterable[Event]], None]:
        return lambda events: self._connection.store().apply(self.key, events)


def upload_others(connection: Connection) -> None:
    """Send what waits for this store of trainings that have ended: nobody else might.

    It never raises for the store's sake, and a refusal is none of the caller's own run.
    """
    try:
        for key in keys_waiting(connection.spool, redacted(connection.uri)):
            recorder = Recorder(connection, key)
            if not recorder.spool.is_followed():
                recorder.upload()
    except (NotStoredError, OSError, UserError) as error:
        warn(f"{error}; records of other runs wait for `hadpsgd track --upload`")
