"""Memory of long searches: what is freed, given back."""

from __future__ import annotations

import ctypes
import os
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


def keep_few_kernels() -> None:
    """Let oneDNN keep 32 kernels and not 1,024, unless the environment says how many; to be called
    before torch first computes. It makes one for each length of utterance, of half a MiB or more,
    and hardly any serves again. Results are the same."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "32")
