"""Processes that end with the one that started them, even if that is killed outright."""

from __future__ import annotations

import ctypes
import signal

_PRCTL = getattr(ctypes.CDLL(None), "prctl", None)
"""Linux alone has it. Looked up here: after a fork nothing is."""
_PDEATHSIG = 1


def end_with_parent(how: signal.Signals = signal.SIGTERM) -> None:
    """Called in a child (Popen's `preexec_fn`): it gets this signal when its parent ends."""
    if _PRCTL is not None:
        _PRCTL(_PDEATHSIG, how)
