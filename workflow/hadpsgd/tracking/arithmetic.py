"""What the last bits of a result depend on beside code, data and seed.

Sums of floating-point numbers depend on their order, and that on the instructions of the processor
and on how libraries use them. Training makes large differences of small ones.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

import threadpoolctl

VARIABLES = (
    "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS", "OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES",
)  # fmt: skip
"""Environment variables by which libraries take other instructions."""
_LIBRARIES = re.compile(r"(Math Kernel Library|MKL-DNN)\)? (?:Version |v)([\d.]+)")


def of_torch() -> dict[str, str]:
    """Instructions as PyTorch uses them, and its libraries of matrix products."""
    import torch  # seconds: only who asks waits

    libraries = _LIBRARIES.findall(torch.__config__.show())
    products = [f"{name.replace('Math Kernel Library', 'MKL')} {v}" for name, v in libraries]
    return {
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch's libraries": ", ".join(products),
    }


def arithmetic(torchs: Mapping[str, str] | None = None) -> dict[str, str]:
    """Processor, its instructions as PyTorch uses them, libraries of matrix products, settings.

    Names and versions, as text; what cannot be known is left out. Threads are in the config
    (`training.threads`), and versions of packages in the provenance.

    torchs: `of_torch()` of the process that computes, for one that has no need of PyTorch.
    """
    found = {
        "processor": processor(),
        **(of_torch() if torchs is None else torchs),
        "numpy's and scipy's": ", ".join(_openblas()),
        "settings": " ".join(f"{n}={os.environ[n]}" for n in VARIABLES if os.environ.get(n)),
    }
    return {name: value for name, value in found.items() if value}


def differing(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """`processor X, then Y` for everything that differs; empty where then is not known."""
    if not then:
        return []
    return [
        f"{name} {now.get(name) or 'none'}, then {then.get(name) or 'none'}"
        for name in dict.fromkeys([*then, *now])
        if then.get(name) != now.get(name)
    ]


def processor() -> str:
    """Its name as the system gives it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.machine()


def _openblas() -> list[str]:
    """`OpenBLAS 0.3.30 Haswell`, version and kernels, of each that numpy and scipy have loaded."""
    import scipy.linalg  # noqa: F401  loads its own

    libraries = threadpoolctl.threadpool_info()
    kinds = {
        f"OpenBLAS {each['version']} {each.get('architecture', '')}".strip()
        for each in libraries
        if each.get("internal_api") == "openblas"
    }
    return sorted(kinds)
