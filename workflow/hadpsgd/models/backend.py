"""What the machine and PyTorch's settings offer the fast paths."""

from __future__ import annotations

import functools
import importlib.util
import warnings

import torch
from torch import Tensor


def allow_tf32(allowed: bool) -> None:
    """Whether products of float32 matrices, LSTMs among them, may be rounded to TF32 on a GPU."""
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


@functools.cache
def has_triton() -> bool:
    """Triton is there (it comes with PyTorch's builds for CUDA), and what it needs to compile: a C
    compiler and Python's headers. A warning where a kernel cannot be made or is wrong."""
    if importlib.util.find_spec("triton") is None:
        return False
    try:
        found = _tried()
    except Exception as error:  # whatever a compiler may raise
        warnings.warn(f"no Triton kernels, PyTorch's are slower: {error}", stacklevel=2)
        return False
    return found


def _tried() -> bool:
    """Whether the smallest of the kernels gives what it should: of two equal logits."""
    from hadpsgd.models import kernels

    logits, losses = torch.zeros(1, 2, device="cuda"), torch.zeros(1, device="cuda")
    target, scale = torch.zeros(1, dtype=torch.int64, device="cuda"), torch.ones((), device="cuda")
    kernels.softmax_gradient[(1,)](
        logits, target, scale, losses, pdfs=2, ignore=-100, BLOCK=2, num_warps=1
    )
    return bool((logits - torch.tensor([-0.5, 0.5], device="cuda")).abs().max() < 1e-5)


def use_kernels(x: Tensor) -> bool:
    """Triton kernels can work on this tensor."""
    kinds = (torch.float32, torch.bfloat16, torch.float16)
    return x.is_cuda and has_triton() and x.dtype in kinds


def working_type(x: Tensor) -> torch.dtype:
    """Type of autocast where it is on, else of x."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


@functools.cache
def can_widen() -> bool:
    """The device multiplies 16-bit matrices into a float32 sum (PyTorch's out_dtype)."""
    total, a = torch.zeros(16, 16, device="cuda"), torch.ones(16, 16, device="cuda").bfloat16()
    try:
        torch.addmm(total, a, a, out_dtype=torch.float32, out=total)
    except (RuntimeError, TypeError):
        return False
    return bool((total == 16).all())


def add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a @ b, in the type of `total` where the device can."""
    if a.dtype == total.dtype:
        total.addmm_(a, b)
    elif a.is_cuda and can_widen():
        torch.addmm(total, a, b, out_dtype=total.dtype, out=total)
    else:
        total += a @ b
