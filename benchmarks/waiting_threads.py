"""Steps a second of a network with several threads, on idle cores and beside other processes.

    python benchmarks/waiting_threads.py                       # 2 threads, 3 repetitions
    python benchmarks/waiting_threads.py --threads 4 --seconds 10

OpenMP's threads that wait for each other do so busily for a while (GNU's: `GOMP_SPINCOUNT` turns).
Where the one that is awaited has no core, the others take it from whom it needs. Contestants run
one after the other, several times over; shown are medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

SIZES = {
    "48 cells": (40, 1, 48, 16, 21),
    "128 cells": (260, 2, 128, 32, 42),
    "512 cells": (260, 4, 512, 64, 21),
}
"""Inputs, layers, cells, subsequences, frames."""
TURNS = (None, 10_000, 1_000)
WARM_UP = 3


def measure(size: str, threads: int, seconds: float) -> tuple[float, float]:
    """Steps a second, and processor milliseconds of one."""
    import torch
    from torch import nn

    torch.set_num_threads(threads)
    inputs, layers, cells, subsequences, frames = SIZES[size]
    blstm = nn.LSTM(inputs, cells, layers, bidirectional=True, batch_first=True)
    output = nn.Linear(2 * cells, 500)
    optimiser = torch.optim.SGD([*blstm.parameters(), *output.parameters()], 0.1)
    features = torch.randn(subsequences, frames, inputs)
    labels = torch.randint(500, (subsequences * frames,))

    def step() -> None:
        optimiser.zero_grad()
        scores = output(blstm(features)[0]).flatten(0, 1)
        nn.functional.cross_entropy(scores, labels).backward()
        optimiser.step()

    for _ in range(WARM_UP):
        step()
    began, used, steps = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() < began + seconds:
        step()
        steps += 1
    wall, used = time.perf_counter() - began, time.process_time() - used
    return steps / wall, 1000 * used / steps


def run(size: str, threads: int, turns: int | None, seconds: float) -> tuple[float, float]:
    """`measure` in a process of its own: OpenMP reads its settings when it is loaded."""
    env = {**os.environ, **({} if turns is None else {"GOMP_SPINCOUNT": str(turns)})}
    command = [sys.executable, __file__, "--measure", size, "--threads", str(threads)]
    ran = subprocess.run(
        [*command, "--seconds", str(seconds)], env=env, check=True, capture_output=True
    )
    steps, used = json.loads(ran.stdout)
    return steps, used


def compare(
    size: str, ways: Sequence[tuple[int, int | None]], args: argparse.Namespace, busy: int
) -> None:
    """Rows of one network."""
    found: dict[tuple[int, int | None], list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(args.repeat):
        for way in ways:
            found[way].append(run(size, *way, args.seconds))
    for (threads, turns), rows in found.items():
        steps, used = zip(*rows, strict=True)
        spread = f"{statistics.median(steps):.3g}, {min(steps):.3g}-{max(steps):.3g}"
        name, milliseconds = f"{turns:,}" if turns else "not set", statistics.median(used)
        row = f"| {busy} | {size} | {threads} | {name} | {spread} | {milliseconds:.3g} |"
        print(row, flush=True)


def main() -> None:
    """A table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", choices=SIZES, help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--busy", type=int, nargs="*", default=[0, 2], help="other processes")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.measure, args.threads, args.seconds)))
        return
    ways = [(1, None), *((args.threads, turns) for turns in TURNS)]
    print("| others | network | threads | GOMP_SPINCOUNT | steps/s, spread | CPU ms/step |")
    print("|---|---|---|---|---|---|")
    for busy in args.busy:
        others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
        try:
            for size in SIZES:
                compare(size, ways, args, busy)
        finally:
            for other in others:
                other.kill()


if __name__ == "__main__":
    main()
