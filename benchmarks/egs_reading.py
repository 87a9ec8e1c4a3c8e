"""Frames a second that one thread gathers from examples in the page cache.

    python benchmarks/egs_reading.py [--dim 260] [--frames 2000000] [--batch 8192]

Writes random examples into a temporary folder, reads epochs of shuffled batches as one learner
does, and prints the rate beside that of copying the same bytes inside memory.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from hadpsgd.egs.dataset import Dataset, Plan
from hadpsgd.egs.shards import ShardWriter
from hadpsgd.egs.shuffle import Permutation

FRAMES = 21


def write(folder: Path, size: int, dim: int, dtype: str) -> None:
    """Examples of noise."""
    rng = np.random.default_rng(0)
    writer = ShardWriter(folder, frames=FRAMES, dim=dim, per_shard=500_000 // FRAMES, dtype=dtype)
    block = rng.normal(size=(500, FRAMES, dim)).astype(np.float32)
    labels = np.zeros((500, FRAMES), np.int32)
    for start in range(0, size, 500):
        rest = min(500, size - start)
        writer.append(block[:rest], labels[:rest])
    writer.close()
    meta = {"format": 1, "frames": FRAMES, "dim": dim, "streams": {}, "dtype": dtype,
            "num_pdfs": 1, "subsequences": size, "shards": writer.shards}  # fmt: skip
    (folder / "meta.json").write_text(json.dumps(meta))
    np.save(folder / "pdf_counts.npy", np.zeros(1, np.int64))


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dim", type=int, default=260)
    parser.add_argument("--frames", type=int, default=2_000_000)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--dtype", choices=["float32", "float16"], default="float32")
    args = parser.parse_args()
    size = args.frames // FRAMES
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, size, args.dim, args.dtype)
        dataset, plan = Dataset(folder), Plan(size=size, batch=args.batch, seed=1)
        for epoch in range(2):
            start = time.perf_counter()
            for step in range(plan.steps):
                dataset.gather(plan.part(epoch=epoch, step=step))
            seconds = time.perf_counter() - start
            print(f"epoch {epoch}: {size * FRAMES / seconds:,.0f} frames/s in one thread")
        source = np.zeros((args.batch, FRAMES, args.dim), np.float32)
        start = time.perf_counter()
        for _ in range(plan.steps):
            source.copy()
        seconds = time.perf_counter() - start
        print(f"copying in memory: {plan.steps * args.batch * FRAMES / seconds:,.0f} frames/s")
    start = time.perf_counter()
    Permutation(34_300_000, 1, 0)(np.arange(8192))
    print(f"order of 8192 out of 34.3 M subsequences: {1e3 * (time.perf_counter() - start):.1f} ms")


if __name__ == "__main__":
    main()
