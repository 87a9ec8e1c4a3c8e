"""A stage ends with the workflow that started it, even if that was killed outright.

Snakemake's jobs outlive a `kill -9` of Snakemake: one of then and its repetition would write the
same outputs at the same time. The process that runs jobs names itself in the environment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable

import psutil

VARIABLE = "HADPSGD_WORKFLOW"
EVERY_SECONDS = 0.5


def announce() -> None:
    """This process starts stages: they end with it."""
    os.environ[VARIABLE] = str(os.getpid())


def watch(end: Callable[[], None]) -> None:
    """Call `end` in a thread once the announced process is gone; nothing if there is none."""
    pid = os.environ.get(VARIABLE, "")
    try:
        owner = psutil.Process(int(pid))
    except (ValueError, psutil.NoSuchProcess):
        return  # by hand, or on another host than the workflow
    if all(owner != parent for parent in psutil.Process().parents()):
        return  # the number belongs to somebody else here
    threading.Thread(target=_wait, args=(owner, end), daemon=True).start()


def stop() -> None:
    """Ask this process to stop at a checkpoint."""
    os.kill(os.getpid(), signal.SIGTERM)


def die() -> None:
    """End this process and all that it started, at once."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            child.kill()
    os._exit(1)


def _wait(owner: psutil.Process, end: Callable[[], None]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):  # it went while it was asked
        while owner.is_running() and owner.status() != psutil.STATUS_ZOMBIE:
            time.sleep(EVERY_SECONDS)
    end()
