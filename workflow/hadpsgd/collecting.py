"""Python's garbage collector while large packages are loaded, and when a process ends.

Loading allocates hundreds of thousands of objects that stay, and the collector goes through them
again and again; once more when the process ends. Of `hadpsgd track`, which loads MLflow, that was
more than a quarter of the processor time.
"""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Load packages in the block: what they leave stays, and none of it is looked at."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def end_quickly() -> None:
    """When this process ends, its memory is given back whole, not object by object."""
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
