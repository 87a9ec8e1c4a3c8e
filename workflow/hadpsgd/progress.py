"""How far a stage is and how long it still takes: a line on standard error now and then.

    decode: 1200 of 4831 utterances in 2 min, 10/s, 6 min left

`hadpsgd status` shows the last such line of each job's log.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from pathlib import Path
from typing import TypeVar

EVERY_SECONDS = 10.0
_TAIL = 8192
_LONGEST = 160
_LINE = re.compile(rb"^[^\r\n]* left$", re.MULTILINE)

T = TypeVar("T")


class Ticker:
    """Prints a line at most every ten seconds, and at the end."""

    def __init__(self, line: Callable[[float], str]) -> None:
        """`line` makes the text from the seconds since the start."""
        self._line = line
        self._start = self._shown = time.monotonic()

    def show(self, *, last: bool = False) -> None:
        """Print, if it is time to."""
        now = time.monotonic()
        if last or now - self._shown >= EVERY_SECONDS:
            self._shown = now
            print(self._line(max(now - self._start, 1e-9)), file=sys.stderr, flush=True)


class Progress:
    """Counts what is done of a total, and tells of it as a `Ticker` does."""

    def __init__(
        self, what: str, total: int, unit: str, more: Callable[[float], str] | None = None
    ) -> None:
        """Begin.

        Args:
            what: the stage.
            total: units in all.
            unit: their name, in the plural.
            more: something else to tell, from the seconds since the start.
        """
        self.done = 0
        self._what, self._total, self._unit, self._more = what, total, unit, more
        self._ticker = Ticker(self.line)

    def add(self, count: int = 1) -> None:
        """So many more are done."""
        self.done += count
        self._ticker.show()

    def end(self) -> None:
        """A last line."""
        self._ticker.show(last=True)

    def line(self, seconds: float) -> str:
        """After so many seconds."""
        parts = [f"{self._what}: {self.done} of {self._total} {self._unit} in {length(seconds)}"]
        if self.done:
            parts.append(_rate(self.done / seconds))
        if self._more is not None:
            parts.append(self._more(seconds))
        if self.done < self._total:
            parts.append(time_left(self.done / self._total, seconds=seconds))
        return ", ".join(parts)


def tracked(
    items: Iterable[T],
    total: int | Sized,
    *,
    what: str,
    unit: str,
    weight: Callable[[T], int] = lambda _: 1,
) -> Iterator[T]:
    """Pass items through and tell how many went, as `Progress` does; `weight`: units of each."""
    progress = Progress(what, total if isinstance(total, int) else len(total), unit)
    for item in items:
        yield item
        progress.add(weight(item))


def time_left(share: float, *, seconds: float) -> str:
    """When that share of the work took so many seconds; nothing known of less than 1 %."""
    if share < 0.01:
        return "unknown time left"
    return f"{length(seconds / share - seconds)} left"


def length(seconds: float) -> str:
    """`35 s`, `4 min` or `1.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def of_speech(seconds: float) -> str:
    """`6.4 s` or `1.5 min`."""
    return f"{seconds:.3g} s" if seconds < 60 else f"{seconds / 60:.1f} min"


def counted(count: int, what: str) -> str:
    """`1 recording`, `2 recordings`."""
    return f"{count} {what}{'s' * (count != 1)}"


def last_line(log: Path) -> str:
    """The last line of a log that tells how long it still takes; empty where none does."""
    found = _LINE.findall(_tail(log))
    return found[-1].decode(errors="replace").strip() if found else ""


def end_of(log: Path) -> str:
    """The last line of a log, cut where it is long; empty where there is none."""
    lines = _tail(log).decode(errors="replace").strip().splitlines()
    return lines[-1][:_LONGEST] if lines else ""


def _tail(log: Path) -> bytes:
    """The last bytes of a log; none where it cannot be read."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, 2) - _TAIL))
            return stream.read()
    except OSError:
        return b""


def _rate(per_second: float) -> str:
    if per_second < 1.0:
        return f"{60 * per_second:.3g}/min"
    return f"{per_second:.0f}/s" if per_second >= 10 else f"{per_second:.1f}/s"
