"""The paper's model on one GPU: ceilings, correctness, training and decoding speed.

    PYTHONPATH=workflow python3 benchmarks/gpu_model.py --out DIR --budget 540

Operations: 258 M a frame, forward and backward (6 x 43.1 M weights). At 800 TFLOP/s,
which is taken as an H100's limit in bf16, that is 3.1 M frames/s. What came out: docs/gpu.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from gpu_parts import compiled, decode, parts
from gpu_tools import (
    FRAMES,
    INPUT,
    PAPER,
    PDFS,
    Bench,
    clean,
    describe,
    graphed,
    median_ms,
    precision,
    profile_table,
    relative,
)
from torch import Tensor

from hadpsgd.models import fast, loss
from hadpsgd.models.blstm import BLSTM

OPERATIONS = 258e6
BATCHES = [256, 1024, 4096, 8192]
PEAK: dict[str, float] = {}


@dataclass(frozen=True)
class Variant:
    """One way to run a training step."""

    precision: str = "bf16"
    """fp32, tf32, bf16 (autocast), or pure (bf16 weights, fp32 master)."""
    lstm: str = "cudnn"
    """cudnn, or own (hadpsgd.models.fast)."""
    loss: str = "chunked"
    """plain (all logits) or chunked."""
    graph: bool = False

    @property
    def name(self) -> str:
        """Short name of the variant."""
        parts = [self.precision, self.lstm, self.loss]
        parts += ["graph"] if self.graph else []
        return "-".join(parts)


def hidden(model: BLSTM, x: Tensor, variant: Variant) -> Tensor:
    """`model.hidden` by the variant's LSTM."""
    if variant.lstm == "cudnn":
        return model.projection(model.lstm(x)[0])
    return model.projection(fast.blstm(model.lstm, x))


def loss_of(model: BLSTM, x: Tensor, targets: Tensor, variant: Variant) -> Tensor:
    """Mean cross-entropy by the variant."""
    states = hidden(model, x, variant)
    if variant.loss == "plain":
        logits = model.output(states)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))
    chunk = max(1, loss.GPU_CHUNKS * loss.CHUNK_VALUES // model.num_pdfs)
    return loss.linear_cross_entropy(
        states, model.output.weight, model.output.bias, targets, chunk=chunk
    )


def training_step(batch: int, variant: Variant) -> Callable[[], Any]:
    """Forward, loss, backward and SGD with momentum on random data."""
    kind = torch.bfloat16 if variant.precision == "pure" else torch.float32
    model = BLSTM(PAPER, input_dim=INPUT, num_pdfs=PDFS).cuda().to(kind).train()
    x = torch.randn(batch, FRAMES, INPUT, device="cuda", dtype=kind)
    targets = torch.randint(PDFS, (batch, FRAMES), device="cuda")
    weights = list(model.parameters())
    master = [w.detach().float().clone() for w in weights]
    momentum = [torch.zeros_like(m) for m in master]
    optimiser = torch.optim.SGD(weights, lr=1e-3, momentum=0.9, fused=True)

    def update() -> None:
        if variant.precision != "pure":
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            return
        gradients = [w.grad.float() for w in weights if w.grad is not None]
        torch._foreach_mul_(momentum, 0.9)
        torch._foreach_add_(momentum, gradients)
        torch._foreach_add_(master, momentum, alpha=-1e-3)
        with torch.no_grad():
            torch._foreach_copy_([w.data for w in weights], master)
        for w in weights:
            w.grad = None

    def step() -> Tensor:
        with precision(variant.precision):
            value = loss_of(model, x, targets, variant)
        value.backward()
        update()
        return value.detach()

    return graphed(step) if variant.graph else step


def run_training(bench: Bench, section: str, batch: int, variant: Variant) -> None:
    """One row: frames/s, share of the limit, peak memory."""

    def body() -> None:
        clean()
        step = training_step(batch, variant)
        ms, spread = median_ms(step)
        frames = batch * FRAMES * 1000 / ms
        peak = PEAK.get("bf16" if variant.precision == "pure" else variant.precision, 0.0)
        bench.add(
            section,
            f"{variant.name} {batch}",
            frames_s=round(frames),
            ms=ms,
            spread=spread,
            tflops=frames * OPERATIONS / 1e12,
            share=frames * OPERATIONS / peak if peak else 0.0,
            gib=torch.cuda.max_memory_allocated() / 2**30,
            loss=float(step()),
        )

    bench.attempt(section, f"{variant.name} {batch}", body)
    clean()


def ceilings(bench: Bench) -> None:
    """Matrix products of 8192^3 on random data, and a device copy."""
    for name, kind in (("bf16", torch.bfloat16), ("tf32", torch.float32), ("fp32", torch.float32)):
        a, b = (torch.randn(8192, 8192, device="cuda").to(kind) for _ in range(2))
        with precision("pure" if name == "bf16" else name):
            ms, spread = median_ms(lambda a=a, b=b: a @ b, seconds=1.0)  # type: ignore[misc]
        PEAK[name] = 2 * 8192**3 / ms * 1000
        bench.add("ceilings", f"matmul {name}", tflops=PEAK[name] / 1e12, spread=spread)
    source = torch.randn(2**30, device="cuda")
    target = torch.empty_like(source)
    ms, spread = median_ms(lambda: target.copy_(source))
    PEAK["bytes"] = 2 * source.nbytes / ms * 1000
    bench.add("ceilings", "copy", gb_s=PEAK["bytes"] / 1e9, spread=spread)


def correctness(bench: Bench) -> None:
    """The whole model against float64 on the CPU: loss, logits, gradients."""
    batch = 11  # no multiple of a tile
    torch.manual_seed(0)
    torch.set_num_threads(16)
    x = torch.randn(batch, FRAMES, INPUT)
    targets = torch.randint(PDFS, (batch, FRAMES))
    model = BLSTM(PAPER, input_dim=INPUT, num_pdfs=PDFS, seed=3)
    exact = BLSTM(PAPER, input_dim=INPUT, num_pdfs=PDFS, seed=3).double()
    logits = exact(x.double())
    value = loss.cross_entropy(logits, targets)
    wanted = torch.autograd.grad(value, list(exact.parameters()))
    model.cuda()
    xs, ts = x.cuda(), targets.cuda()

    def check(variant: Variant) -> None:
        torch.manual_seed(1)
        for p in model.parameters():
            p.grad = None
        subject = model
        if variant.precision == "pure":
            subject = BLSTM(PAPER, input_dim=INPUT, num_pdfs=PDFS, seed=3).cuda().bfloat16()
        kind = next(subject.parameters()).dtype
        with precision(variant.precision):
            with torch.no_grad():
                got_logits = subject.output(hidden(subject, xs.to(kind), variant))
            got = loss_of(subject, xs.to(kind), ts, variant)
        got.backward()
        errors = [
            relative(p.grad, want)
            for p, want in zip(subject.parameters(), wanted, strict=True)
            if p.grad is not None
        ]
        flat = torch.cat([p.grad.double().flatten().cpu() for p in subject.parameters()])  # type: ignore[union-attr]
        bench.add(
            "correct",
            variant.name,
            logits=relative(got_logits, logits),
            loss=abs(float(got) - float(value)) / float(value),
            gradient=relative(flat, torch.cat([w.flatten() for w in wanted])),
            worst=max(errors),
        )

    for variant in (
        Variant("fp32", "cudnn", "plain"),
        Variant("fp32", "cudnn", "chunked"),
        Variant("fp32", "own", "chunked"),
        Variant("tf32", "cudnn", "plain"),
        Variant("tf32", "own", "chunked"),
        Variant("bf16", "cudnn", "plain"),
        Variant("bf16", "cudnn", "chunked"),
        Variant("bf16", "own", "chunked"),
        Variant("pure", "cudnn", "plain"),
        Variant("pure", "own", "chunked"),
    ):
        bench.attempt("correct", variant.name, lambda v=variant: check(v))  # type: ignore[misc]


def baseline(bench: Bench) -> None:
    """cuDNN's LSTM, all precisions and batches."""
    for batch in reversed(BATCHES):
        for kind in ("bf16", "tf32", "fp32", "pure"):
            run_training(bench, "baseline", batch, Variant(kind, "cudnn", "plain"))
            if batch >= 4096 and kind in ("tf32", "fp32"):
                run_training(bench, "baseline", batch, Variant(kind, "cudnn", "chunked"))


def quick(bench: Bench) -> None:
    """The fast variants at every batch."""
    for batch in reversed(BATCHES):
        for variant in (
            Variant("bf16", "cudnn", "chunked"),
            Variant("bf16", "own", "chunked"),
            Variant("bf16", "own", "chunked", graph=True),
            Variant("pure", "own", "chunked", graph=True),
            Variant("bf16", "cudnn", "chunked", graph=True),
        ):
            run_training(bench, "fast", batch, variant)
    for batch in (8192, 256):
        for kind in ("tf32", "fp32"):
            run_training(bench, "fast", batch, Variant(kind, "own", "chunked", graph=True))


def profiles(bench: Bench) -> None:
    """Where the time goes at 8,192 subsequences."""
    for variant in (
        Variant("bf16", "own", "chunked"),
        Variant("bf16", "cudnn", "chunked"),
    ):

        def body(variant: Variant = variant) -> None:
            clean()
            rows = profile_table(training_step(8192, variant))
            total = sum(ms for _, ms, _ in rows)
            lines = [f"{ms:9.3f} ms {ms / total:6.1%} {n:6d} x  {key}" for key, ms, n in rows]
            if bench.out:
                (bench.out / f"profile-{variant.name}.txt").write_text("\n".join(lines))
            for key, ms, count in rows[:14]:
                bench.add("profile", variant.name, ms=ms, count=count, kernel=key[:70])

        bench.attempt("profile", variant.name, body)
        clean()


def main() -> None:
    """Run the sections and print the table."""
    sections = {
        "ceilings": (ceilings, 10),
        "correct": (correctness, 40),
        "fast": (quick, 30),
        "baseline": (baseline, 30),
        "profile": (profiles, 10),
        "decode": (decode, 10),
        "parts": (parts, 20),
        "compiled": (compiled, 30),
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for results.json and profiles")
    parser.add_argument("--budget", type=float, default=540, help="seconds (default 540)")
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES, help="subsequences")
    parser.add_argument("--only", help=f"sections, comma-separated, of: {', '.join(sections)}")
    args = parser.parse_args()
    BATCHES[:] = args.batches
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
    bench = Bench(args.budget, args.out, set(args.only.split(",")) if args.only else None)
    bench.add(
        "device",
        torch.cuda.get_device_name(),
        torch=torch.__version__,
        cudnn=str(torch.backends.cudnn.version()),
        gib=torch.cuda.get_device_properties(0).total_memory / 2**30,
    )
    for name, (body, needs) in sections.items():
        bench.section(name, body, needs)
    print("\n=== table")
    for row in bench.rows:
        if row["section"] != "profile":
            print(describe(row))


if __name__ == "__main__":
    main()
