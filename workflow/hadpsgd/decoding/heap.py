"""Memory of long searches: what is freed, given back."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache


@lru_cache(maxsize=1)
def _trim() -> Callable[[int], int] | None:
    """The C library's malloc_trim, where it has one (glibc)."""
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim


def give_back() -> None:
    """Return what lies free between small arrays that live on: a search leaves much of it."""
    if trim := _trim():
        trim(0)
