"""With bf16, memory that a step frees stays with the process, for the next step to take again."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Parameters of glibc's mallopt (malloc.h)."""


def keep() -> bool:
    """Ask glibc to give nothing back; whether it will. Other C libraries are left as they are.

    glibc returns every large tensor to the system and gets zeroed pages again a moment later, tens
    of thousands a step: in a virtual machine that takes a quarter of the time of bf16's steps. The
    process keeps the most that it ever had at once, and what lies scattered between: a tenth to a
    half more (docs/benchmarks/bf16.md).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    return mallopt is not None and all([mallopt(_TRIM_THRESHOLD, -1), mallopt(_MMAP_MAX, 0)])
