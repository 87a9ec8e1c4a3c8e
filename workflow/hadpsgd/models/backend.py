"""What the machine and PyTorch's settings offer the fast paths."""

from __future__ import annotations

import functools
import importlib.util

import torch
from torch import Tensor


def allow_tf32(allowed: bool) -> None:
    """Whether products of float32 matrices, LSTMs among them, may be rounded to TF32 on a GPU."""
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


@functools.cache
def has_triton() -> bool:
    """Triton can be imported (it comes with PyTorch's builds for CUDA)."""
    return importlib.util.find_spec("triton") is not None


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
