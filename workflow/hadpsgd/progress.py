"""A line on standard error now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

EVERY_SECONDS = 10.0


class Progress:
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
            print(self._line(max(now - self._start, 1e-9)), file=sys.stderr)
