"""Per-frame cross-entropy and frame accuracy, without ever holding all logits.

8,192 subsequences of 21 frames give 172,032 frames; their logits over 32,000 pdf-ids would take
20.5 GiB, and their gradient as much again. `linear_cross_entropy` therefore computes logits, loss
and gradient in chunks of frames, the gradient already in the forward pass, as Liger Kernel's
fused linear cross-entropy does (Hsu et al. 2024, arXiv 2410.10989).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from hadpsgd.models.backend import add_product, use_kernels, working_type

IGNORE = -100
"""Target of a frame that does not count (padding), as in torch.nn.functional.cross_entropy."""

CHUNK_VALUES = 2**26
"""Logits held at once; outputs that give fewer take the plain path, but for bf16 on processors."""

GPU_CHUNKS = 4
"""A GPU, whose products are faster the larger they are, holds so many times as many."""

BLOCK_VALUES = 2**18
"""Logits whose softmax a processor computes at once: in float32 they stay in its cache."""


class FrameScore(NamedTuple):
    """Sums over frames, to be added up over batches before dividing."""

    loss: float
    """Sum of the frames' cross-entropy, nats."""
    correct: int
    """Frames whose most probable pdf-id is the target."""
    frames: int
    """Frames that counted."""


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean over frames of -log softmax(logits)[target]; frames of IGNORE do not count.

    Args:
        logits: [..., num_pdfs].
        targets: pdf-ids [...], int64.
    """
    flat = logits.reshape(-1, logits.shape[-1])
    total = F.cross_entropy(flat, targets.reshape(-1), ignore_index=IGNORE, reduction="sum")
    return total / _count(targets)


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, chunk: int | None = None
) -> Tensor:
    """`cross_entropy(hidden @ weight.T + bias, targets)` with the logits of `chunk` frames at once.

    Args:
        hidden: [..., projection].
        weight: [num_pdfs, projection].
        bias: [num_pdfs].
        targets: pdf-ids [...], int64, frames of IGNORE do not count.
        chunk: frames at once; None takes the plain path where that is faster, else as many frames
            as CHUNK_VALUES allows.
    """
    frames = targets.numel()
    if chunk is None:
        # autocast on a processor would hold, and pass over, all logits in fp32 several times
        blockwise = hidden.device.type == "cpu" and working_type(hidden) == torch.bfloat16
        if frames * len(weight) <= CHUNK_VALUES and not blockwise:
            return cross_entropy(F.linear(hidden, weight, bias), targets)
        held = CHUNK_VALUES * (GPU_CHUNKS if hidden.is_cuda else 1)
        chunk = max(1, held // len(weight))
    flat = hidden.reshape(frames, -1)
    return _LinearCrossEntropy.apply(flat, weight, bias, targets.reshape(-1), chunk)


@torch.no_grad()
def score_frames(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> FrameScore:
    """Loss and accuracy sums of a batch (arguments as of `linear_cross_entropy`)."""
    frames = targets.numel()
    step = max(1, CHUNK_VALUES // len(weight))
    loss = torch.zeros((), dtype=torch.float64, device=hidden.device)
    correct = torch.zeros((), dtype=torch.int64, device=hidden.device)
    parts = hidden.reshape(frames, -1).split(step), targets.reshape(-1).split(step)
    for part, wanted in zip(*parts, strict=True):
        logits = F.linear(part, weight, bias).float()
        loss += F.cross_entropy(logits, wanted, ignore_index=IGNORE, reduction="sum")
        correct += (logits.argmax(-1) == wanted).sum()
    counted = int((targets != IGNORE).sum())
    return FrameScore(loss=float(loss), correct=int(correct), frames=counted)


def _count(targets: Tensor) -> Tensor:
    # an empty mask gives a loss of 0 with gradient 0, not NaN
    return (targets != IGNORE).sum().clamp(min=1)


class _LinearCrossEntropy(torch.autograd.Function):
    """Loss and gradients of a chunk while its logits exist; backward only scales them."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, chunk: int
    ) -> Tensor:
        compute = working_type(hidden)
        x, w, b = hidden.to(compute), weight.to(compute), bias.to(compute)
        exact = torch.promote_types(compute, torch.float32)
        scale = 1.0 / _count(targets).to(exact)
        wanted = any(ctx.needs_input_grad[:3])
        dx = torch.empty_like(x) if wanted else None
        dw = torch.zeros_like(weight, dtype=exact) if wanted else None
        db = torch.zeros_like(bias, dtype=exact) if wanted else None
        loss = torch.zeros((), dtype=exact, device=hidden.device)
        with torch.autocast(hidden.device.type, enabled=False):
            buffer = x.new_empty((min(chunk, len(x)), len(w)))
            for start in range(0, len(x), chunk):
                rows = slice(start, start + chunk)
                logits = torch.addmm(b, x[rows], w.T, out=buffer[: len(x[rows])])
                part, gradient, of_bias = _softmax_gradient(logits, targets[rows], scale)
                loss += part
                if dx is None or dw is None or db is None:
                    continue
                db += of_bias
                torch.mm(gradient, w, out=dx[rows])
                # the sum over chunks is kept exact where the products are in bf16
                add_product(dw, gradient.T, x[rows])
        if dx is not None and dw is not None and db is not None:
            ctx.save_for_backward(dx.to(hidden.dtype), dw.to(weight.dtype), db.to(bias.dtype))
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (scale,) = grads
        dx, dw, db = ctx.saved_tensors
        return dx * scale.to(dx.dtype), dw * scale.to(dw.dtype), db * scale.to(db.dtype), None, None


def _softmax_gradient(
    logits: Tensor, targets: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Sum of the losses times `scale`; d loss / d logits, in the memory of the logits; its sums
    over frames [pdfs], of the type of `scale`.
    """
    if use_kernels(logits):
        from hadpsgd.models import kernels

        losses = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
        kernels.softmax_gradient[(len(logits),)](
            logits, targets, scale, losses, pdfs=logits.shape[1], ignore=IGNORE,
            BLOCK=4096, num_warps=8,
        )  # fmt: skip
        return losses.sum(), logits, logits.sum(0, dtype=scale.dtype)
    loss = torch.zeros_like(scale)
    of_bias = scale.new_zeros(logits.shape[1])
    # a GPU would only start more kernels
    on_processor = logits.device.type == "cpu"
    step = max(1, BLOCK_VALUES // logits.shape[1] if on_processor else len(logits))
    for part, wanted in zip(logits.split(step), targets.split(step), strict=True):
        exact = part.to(scale.dtype)
        index = wanted.clamp(min=0)[:, None]
        of_target, top = exact.gather(-1, index), exact.amax(-1, keepdim=True)
        gradient = exact.softmax(-1)
        # the largest posterior never underflows, as that of a target may
        log_normaliser = top - gradient.amax(-1, keepdim=True).log()
        factor = ((wanted != IGNORE) * scale)[:, None]
        loss += ((log_normaliser - of_target) * factor).sum()
        gradient.mul_(factor).scatter_add_(-1, index, -factor)
        of_bias += gradient.sum(0)
        part.copy_(gradient)
    return loss, logits, of_bias
