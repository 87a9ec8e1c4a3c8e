"""Memory of long searches: arrays of which little is touched; what is freed, given back."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import DTypeLike, NDArray


@lru_cache(maxsize=1)
def _trim() -> Callable[[int], int] | None:
    """The C library's malloc_trim, where it has one (glibc)."""
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim


def give_back() -> None:
    """Return what lies free between small arrays that live on: a search leaves much of it."""
    if trim := _trim():
        trim(0)


def sparse_zeros(size: int, dtype: DTypeLike) -> NDArray:
    """Zeros [size] whose pages come into being when they are written to.

    NumPy's own large arrays come in huge pages: a few numbers here and there would fill them all.
    """
    kind = np.dtype(dtype)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, max(size * kind.itemsize, 1), flags=flags)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, kind, size)
