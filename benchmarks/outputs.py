"""The output layer's loss and gradients: dense, in chunks of frames, and by torch's own function.

    python benchmarks/outputs.py                              # 1,000, 9,000 and 32,000 outputs
    python benchmarks/outputs.py --outputs 32000 --ways dense chunked 2^22 2^24 --precision fp32

A way is `dense` (all logits at once), `chunked` (as training has it above its limit, and here below
it, too), 2^N (chunks of so many logits) or `torch` (torch.nn.functional.linear_cross_entropy, in
chunks of its own choice). Each turn of a way is a process of its own, and the ways take turns, so
that what else the machine does hits all alike. Shown are medians of frames a processor second (one
thread), the slowest and the fastest; by how much the process grew at its peak; and how far loss
and gradients of 64 frames are from those in float64 (|difference| / |gradient|, the worst).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from hadpsgd.models import loss
from hadpsgd.tracking.arithmetic import arithmetic as surroundings

WIDTH = 512
"""Of the output layer's input."""
CHECKED = 64
"""Frames of which gradients are compared."""
SECONDS = 1.0
"""Processor seconds that a turn takes at least."""
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def main() -> None:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--outputs", nargs="+", type=int, default=[1000, 9000, 32_000])
    parser.add_argument("--frames", type=int, default=2688, help="of a batch (128 x 21)")
    parser.add_argument("--precision", nargs="+", choices=list(TYPES), default=list(TYPES))
    parser.add_argument("--ways", nargs="+", default=["dense", "chunked", "torch"])
    parser.add_argument("--rounds", type=int, default=3, help="turns of each way")
    parser.add_argument("--turn", action="store_true", help="one turn, in this process")
    args = parser.parse_args()
    if args.turn:
        print(json.dumps(turn(args.ways[0], args.outputs[0], args.frames, args.precision[0])))
        return
    print(f"{surroundings()}, 1 thread, {WIDTH} wide, {args.frames} frames")
    for precision in args.precision:
        print(f"fp32 product: {gigaflops():.0f} GFLOP/s\n\n| {precision}: outputs, way | frames/s"
              " | slowest to fastest | peak MiB | error |\n|---|---|---|---|---|")  # fmt: skip
        for outputs in args.outputs:
            for way, turns in measure(args, outputs, precision).items():
                speeds = sorted(each["speed"] for each in turns)
                peak = statistics.median(each["peak_mib"] for each in turns)
                print(f"| {outputs}, {way} | {statistics.median(speeds):.0f} | {speeds[0]:.0f} to"
                      f" {speeds[-1]:.0f} | {peak:.0f} | {turns[0]['error']:.0e} |",
                      flush=True)  # fmt: skip


def measure(
    args: argparse.Namespace, outputs: int, precision: str
) -> dict[str, list[dict[str, float]]]:
    """What the turns of each way measured."""
    found: dict[str, list[dict[str, float]]] = {way: [] for way in args.ways}
    for _ in range(args.rounds):
        for way, turns in found.items():
            words = ["--turn", "--outputs", str(outputs), "--frames", str(args.frames)]
            words += ["--precision", precision, "--ways", way]
            said = subprocess.run(
                [sys.executable, __file__, *words], capture_output=True, text=True, check=True
            )
            turns.append(json.loads(said.stdout))
    return found


def turn(way: str, outputs: int, frames: int, precision: str) -> dict[str, float]:
    """Frames a processor second, MiB above what weights and input take, and the error."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    hidden, weight, bias = (
        (torch.randn(*size, generator=generator) * scale).requires_grad_()
        for size, scale in (((frames, WIDTH), 1.0), ((outputs, WIDTH), 0.05), ((outputs,), 0.05))
    )
    targets = torch.randint(outputs, (frames,), generator=generator)
    leaves = hidden, weight, bias
    few = hidden.detach()[:CHECKED].requires_grad_(), weight, bias
    error = worst(few, targets[:CHECKED], way, precision)  # also what is made at first use
    before, count = status("VmRSS"), 0
    began = time.process_time()
    while (spent := time.process_time() - began) < SECONDS:
        torch.autograd.grad(value(way, precision, leaves, targets), leaves)
        count += 1
    peak = (status("VmHWM") - before) / 1024
    return {"speed": count * frames / spent, "peak_mib": peak, "error": error}


def value(way: str, precision: str, leaves: tuple[Tensor, ...], targets: Tensor) -> Tensor:
    """The loss, in one of the ways."""
    hidden, weight, bias = leaves
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        if way == "dense":
            return loss.cross_entropy(F.linear(hidden, weight, bias), targets)
        if way == "torch":
            x, w, b = (leaf.to(TYPES[precision]) for leaf in leaves)
            options = torch.nn.LinearCrossEntropyOptions()
            return F.linear_cross_entropy(x, w, targets, linear_bias=b, options=options)
        values = loss.CHUNK_VALUES if way == "chunked" else 2 ** int(way.removeprefix("2^"))
        chunk = max(1, values // len(weight))
        return loss.linear_cross_entropy(hidden, weight, bias, targets, chunk=chunk)


def worst(leaves: tuple[Tensor, ...], targets: Tensor, way: str, precision: str) -> float:
    """The largest relative error of loss and gradients."""
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    reference = loss.cross_entropy(F.linear(*exact), targets)
    found = value(way, precision, leaves, targets)
    pairs = [(found.detach(), reference.detach())]
    pairs += zip(
        torch.autograd.grad(found, leaves), torch.autograd.grad(reference, exact), strict=True
    )
    return max(float((ours - wanted).norm() / wanted.norm()) for ours, wanted in pairs)


def status(name: str) -> int:
    """KiB that the kernel counts of this process: VmRSS now, VmHWM at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{name}:")))


def gigaflops() -> float:
    """Of a product of matrices, one thread: how fast the machine is at the time."""
    torch.set_num_threads(1)
    size = 1024
    a, b = torch.ones(size, size), torch.ones(size, size)
    a @ b
    began = time.process_time()
    for _ in range(10):
        a @ b
    return 10 * 2 * size**3 / (time.process_time() - began) / 1e9


if __name__ == "__main__":
    main()
