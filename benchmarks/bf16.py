"""Frames a processor second of one learner's gradient: fp32, autocast, our bf16 layers.

    python benchmarks/bf16.py                                   # both models, one thread
    python benchmarks/bf16.py --only 2x128 --batch 256 --repeat 20 --threads 2
    python benchmarks/bf16.py --layers                          # no output, no loss

The ways take turns, so that what else the machine does hits all alike; shown are medians and the
spread from the slowest to the fastest repetition. With one thread and nothing else to do, a
processor second is one by the clock.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from hadpsgd.config.settings import Model
from hadpsgd.models import bf16_lstm
from hadpsgd.models.blstm import BLSTM
from hadpsgd.tracking.arithmetic import arithmetic as surroundings
from hadpsgd.training import arithmetic, memory
from hadpsgd.training.arithmetic import CHOICES

FRAMES = 21
"""Of a subsequence."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model and its data."""

    name: str
    shape: Model
    input_dim: int
    num_pdfs: int


CASES = (
    Case(
        name="2x128",
        shape=Model(layers=2, cells=128, projection=128, dropout=0.0),
        input_dim=40,
        num_pdfs=1000,
    ),
    Case(name="6x512", shape=Model(dropout=0.0), input_dim=260, num_pdfs=32_000),
)
"""The size for small corpora, and the papers' model (arXiv 2002.01119)."""


def main() -> None:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=[case.name for case in CASES])
    parser.add_argument("--batch", type=int, default=64, help="subsequences of 21 frames")
    parser.add_argument("--repeat", type=int, default=7, help="repetitions after the warm-up")
    parser.add_argument("--threads", type=int, default=1, help="of the learner")
    parser.add_argument("--layers", action="store_true", help="the LSTM layers alone")
    parser.add_argument("--give-back", action="store_true", help="freed memory, after every step")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if not args.give_back:
        memory.keep()  # as training does
    print(f"{surroundings()}, {args.threads} threads, batch {args.batch}")
    for case in CASES:
        if args.only and case.name not in args.only:
            continue
        frames = args.batch * FRAMES
        found = measure(case, batch=args.batch, repeat=args.repeat, layers=args.layers)
        base = statistics.median(found["fp32"])
        print(f"\n| {case.name} | frames/s | slowest to fastest | times fp32 |\n|---|---|---|---|")
        for way, seconds in found.items():
            middle = statistics.median(seconds)
            spread = f"{frames / max(seconds):.0f} to {frames / min(seconds):.0f}"
            print(f"| {way} | {frames / middle:.0f} | {spread} | {base / middle:.2f} |")


def measure(case: Case, *, batch: int, repeat: int, layers: bool) -> dict[str, list[float]]:
    """Processor seconds of a gradient by way, one a repetition; the first is not counted."""
    model = BLSTM(case.shape, input_dim=case.input_dim, num_pdfs=case.num_pdfs)
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(batch, FRAMES, case.input_dim, generator=draws)
    targets = torch.randint(case.num_pdfs, (batch, FRAMES), generator=draws)
    seconds: dict[str, list[float]] = {way: [] for way in CHOICES}
    for _ in range(repeat + 1):
        for way, found in seconds.items():
            arithmetic.prepare(model, way)
            begin = time.process_time()
            with arithmetic.mode(way, x.device):
                value = states(model, x).float().sum() if layers else model.loss(x, targets)
            value.backward()
            found.append(time.process_time() - begin)
    return {way: found[1:] for way, found in seconds.items()}


def states(model: BLSTM, x: Tensor) -> Tensor:
    """What the layers give."""
    return bf16_lstm.blstm(model.lstm, x) if model.own_layers else model.lstm(x)[0]


if __name__ == "__main__":
    main()
