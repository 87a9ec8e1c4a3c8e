"""The parts of a training step alone, torch.compile of parts, and decoding."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from gpu_tools import FRAMES, INPUT, PAPER, PDFS, Bench, clean, median_ms, precision
from torch import Tensor

from hadpsgd.decoding.network import log_likelihoods
from hadpsgd.models import backend, fast, loss
from hadpsgd.models.blstm import BLSTM
from hadpsgd.models.long_input import hidden

BATCH, CELLS, WIDTH = 8192, PAPER.cells, PAPER.projection
N = BATCH * FRAMES


def timed(
    bench: Bench, name: str, work: Callable[[], Any], operations: float = 0, nbytes: float = 0
) -> None:
    """One row: milliseconds, TFLOP/s and GB/s of a part."""

    def body() -> None:
        ms, spread = median_ms(work, seconds=0.3)
        values = {"ms": ms, "spread": spread}
        if operations:
            values["tflops"] = operations / ms / 1e9
        if nbytes:
            values["gb_s"] = nbytes / ms / 1e6
        bench.add("parts", name, **values)

    bench.attempt("parts", name, body)


def draw(*size: int, kind: torch.dtype = torch.bfloat16) -> Tensor:
    """Random values on the device."""
    return torch.randn(*size, device="cuda", dtype=kind)


def parts(bench: Bench) -> None:
    """Every large operation of a step at 8,192 subsequences."""
    bench.attempt("parts", "products", lambda: products(bench))
    clean()
    bench.attempt("parts", "gates", lambda: gates(bench))
    clean()
    bench.attempt("parts", "loss", lambda: losses(bench))


def products(bench: Bench) -> None:
    """Matrix products outside the loss."""
    x, w = draw(N, 2 * CELLS), draw(8 * CELLS, 2 * CELLS)
    bias = draw(8 * CELLS)
    g = draw(N, 8 * CELLS)
    big = 2.0 * N * 2 * CELLS * 8 * CELLS
    timed(bench, "input product", lambda: torch.addmm(bias, x, w.T), big)
    timed(bench, "d input", lambda: g @ w, big)
    timed(bench, "d input weight", lambda: g.T @ x, big)
    x260, w260 = draw(N, 260), draw(8 * CELLS, 260)
    timed(bench, "input product, 260", lambda: x260 @ w260.T, 2.0 * N * 260 * 8 * CELLS)
    x264, w264 = draw(N, 264), draw(8 * CELLS, 264)
    timed(bench, "input product, 264", lambda: x264 @ w264.T, 2.0 * N * 264 * 8 * CELLS)
    state, w_hh = draw(2, BATCH, CELLS), draw(2, 4 * CELLS, CELLS)
    step = 2.0 * 2 * BATCH * CELLS * 4 * CELLS
    timed(bench, "recurrent bmm", lambda: torch.bmm(state, w_hh.transpose(1, 2)), step)
    both = g[:BATCH].view(BATCH, 2, 4 * CELLS)
    d_state = torch.empty_like(state)

    def backward() -> None:
        for d in range(2):
            torch.mm(both[:, d], w_hh[d], out=d_state[d])

    timed(bench, "recurrent backward, 2 mm", backward, step)
    by_direction, states = g.view(N, 2, 4 * CELLS), x.view(N, 2, CELLS)
    timed(
        bench,
        "d recurrent weight, one direction",
        lambda: by_direction[BATCH:, 0].T @ states[:-BATCH, 0],
        2.0 * (N - BATCH) * CELLS * 4 * CELLS,
    )


def gates(bench: Bench) -> None:
    """Gate kernels by tile; bytes as counted for one step."""
    values = draw(3, BATCH, 2, 4, CELLS).sigmoid()
    d_gates = torch.empty_like(values)
    recurrent = draw(2, BATCH, 4, CELLS)
    out, state, d_state = draw(3, BATCH, 2, CELLS), draw(2, BATCH, CELLS), draw(2, BATCH, CELLS)
    d_cell = draw(2, BATCH, CELLS, kind=torch.float32)
    unit, usual = 2 * BATCH * CELLS, (fast.FORWARD, fast.BACKWARD)
    for kind in (torch.float32, torch.bfloat16):
        cells = draw(3, BATCH, 2, CELLS, kind=kind)
        size = kind.itemsize
        for rows, cols in ((16, 128), (8, 128), (4, 256), (4, 512), (32, 64)):
            fast.FORWARD = fast.BACKWARD = rows, cols
            d_bias = torch.zeros(-(-BATCH // rows), 2, 4, CELLS, device="cuda")
            name = f"{rows}x{cols} cells {size} B"
            timed(
                bench,
                f"gates forward {name}",
                lambda c=cells: fast._gates_forward(values, recurrent, c, out, state, 1),  # type: ignore[misc]
                nbytes=unit * (12 * 2 + 2 * size + 2 * 2),
            )
            timed(
                bench,
                f"gates backward {name}",
                lambda c=cells, b=d_bias: fast._gates_backward(  # type: ignore[misc]
                    values, c, out, d_state, d_cell, d_gates, b, 1
                ),
                nbytes=unit * (8 * 2 + size + 2 * 2 + 8),
            )
    fast.FORWARD, fast.BACKWARD = usual


def losses(bench: Bench) -> None:
    """Softmax and cross-entropy over 32,000 outputs, by chunk; and its parts."""
    hidden, weight, bias = draw(N, WIDTH), draw(PDFS, WIDTH), draw(PDFS)
    targets = torch.randint(PDFS, (N,), device="cuda")
    hidden.requires_grad_(), weight.requires_grad_(), bias.requires_grad_()
    for chunk in (512, 2048, 8192, 24576):
        timed(
            bench,
            f"loss and gradients, chunks of {chunk}",
            lambda c=chunk: loss.linear_cross_entropy(hidden, weight, bias, targets, chunk=c),  # type: ignore[misc]
            6.0 * N * WIDTH * PDFS,
        )
    rows = 8192
    x, w, b = hidden.detach()[:rows], weight.detach(), bias.detach()
    logits = torch.addmm(b, x, w.T)
    scale = torch.tensor(1e-4, device="cuda")
    one = 2.0 * rows * WIDTH * PDFS
    total = torch.zeros(PDFS, WIDTH, device="cuda")
    timed(bench, "logits, 8192 rows", lambda: torch.addmm(b, x, w.T), one, logits.nbytes)
    timed(bench, "d hidden, 8192 rows", lambda: logits @ w, one, logits.nbytes)
    timed(
        bench,
        "d weight, 8192 rows",
        lambda: backend.add_product(total, logits.T, x),
        one,
        logits.nbytes,
    )
    timed(bench, "d bias, sum", lambda: logits.sum(0, dtype=torch.float32), 0, logits.nbytes)
    ones = torch.ones(8, rows, device="cuda", dtype=torch.bfloat16)
    timed(bench, "d bias, product", lambda: ones @ logits, 0, logits.nbytes)
    timed(
        bench,
        "softmax gradient kernel",
        lambda: loss._softmax_gradient(logits, targets[:rows], scale),
        0,
        2 * logits.nbytes,
    )


def compiled(bench: Bench) -> None:
    """torch.compile of the projection and the plain loss."""

    def head(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(F.linear(hidden, weight, bias).float(), targets)

    frames = 1024 * FRAMES
    hidden, weight, bias = draw(frames, WIDTH), draw(PDFS, WIDTH), draw(PDFS)
    leaves = [t.requires_grad_() for t in (hidden, weight, bias)]
    targets = torch.randint(PDFS, (frames,), device="cuda")
    for name, body in (
        ("plain", head),
        ("compiled", torch.compile(head)),
        ("chunked", lambda h, w, b, t: loss.linear_cross_entropy(h, w, b, t, chunk=8192)),
    ):

        def run(name: str = name, body: Callable[..., Tensor] = body) -> None:
            clean()
            started = time.monotonic()
            torch.autograd.grad(body(*leaves, targets), leaves)
            torch.cuda.synchronize()
            first = time.monotonic() - started
            ms, spread = median_ms(lambda: torch.autograd.grad(body(*leaves, targets), leaves))
            peak = torch.cuda.max_memory_allocated() / 2**30
            bench.add("compiled", f"loss {name}", ms=ms, spread=spread, gib=peak, first_s=first)

        bench.attempt("compiled", name, run)


def decode(bench: Bench) -> None:
    """Log-posteriors of whole utterances of 200 to 1,500 frames, padded and packed."""
    generator = torch.Generator().manual_seed(0)
    model = BLSTM(PAPER, input_dim=INPUT, num_pdfs=PDFS).cuda().eval()
    for batch in (16, 64):
        lengths = torch.randint(200, 1501, (batch,), generator=generator)
        x = torch.randn(batch, int(lengths.max()), INPUT, device="cuda")
        frames = int(lengths.sum())
        for kind in ("bf16", "tf32", "fp32"):

            def posteriors(x: Tensor = x, lengths: Tensor = lengths, kind: str = kind) -> None:
                with precision(kind):
                    hidden = model.hidden(x, lengths)
                    for row, length in zip(hidden, lengths.tolist(), strict=True):
                        model.output(row[:length]).float().log_softmax(-1)

            def run(
                work: Callable[[], None] = posteriors,
                name: str = f"{kind} {batch} utterances",
                frames: int = frames,
            ) -> None:
                with torch.inference_mode():
                    ms, spread = median_ms(work)
                speed = round(frames * 1000 / ms)
                peak = torch.cuda.max_memory_allocated() / 2**30
                bench.add("decode", name, frames_s=speed, ms=ms, spread=spread, gib=peak)

            bench.attempt("decode", f"{kind} {batch}", run)
            clean()
    bench.attempt("decode", "one by one", lambda: one_by_one(bench, model, generator))


def one_by_one(bench: Bench, model: BLSTM, generator: torch.Generator) -> None:
    """Scores of utterances one after the other, on the host, as `hadpsgd decode` has them."""
    lengths = torch.randint(200, 1501, (16,), generator=generator).tolist()
    spoken = [torch.randn(length, INPUT) for length in lengths]
    priors = torch.zeros(PDFS, device="cuda")

    def scores() -> None:
        for features in spoken:
            log_likelihoods(model, hidden(model, features.cuda()), priors).cpu()

    with torch.inference_mode():
        ms, spread = median_ms(scores)
    speed = round(sum(lengths) * 1000 / ms)
    bench.add("decode", "fp32 one by one, to the host", frames_s=speed, ms=ms, spread=spread)
