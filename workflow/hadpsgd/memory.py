"""How much memory this process may take."""

from __future__ import annotations

import os
import resource
from pathlib import Path

_LIMITS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)
_MIB = 2**20


def allowed() -> int:
    """Bytes: of this host, or less where a scheduler, a container or `ulimit -v` says so.

    Others may have some of it: more than this never fits, less may not fit either.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    limits += [int(text) for path in _LIMITS if (text := _read(path)).isdecimal()]
    if (given := os.environ.get("SLURM_MEM_PER_NODE", "")).isdecimal() and int(given):
        limits.append(int(given) * _MIB)
    ulimit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if ulimit != resource.RLIM_INFINITY:
        limits.append(ulimit)
    return min(limits)


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
