"""Frames a second that are read of examples, and reads and opens of a batch.

    python benchmarks/egs_reading.py [--frames 4000000] [--batch 8192] [--dtype float16 int8]
    python benchmarks/egs_reading.py --learners 128 --steps 40

Writes random examples of the papers' 260 inputs (fMLLR, an i-vector, log mel energies with their
deltas) into a temporary folder, in each of the types. Shuffled batches of them are read one by one
and in runs of 16, with one thread and with two; the page cache is warm. With --learners the parts
of that many learners are read, each with files of its own; reads and opens of a batch are counted.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import deque
from pathlib import Path

import numpy as np

from hadpsgd.egs.dataset import Dataset, Plan
from hadpsgd.egs.layout import DTYPES, LABELS, Layout, Part
from hadpsgd.egs.precision import pack
from hadpsgd.egs.shards import TABLE, ArrayFile, describe, write_shard

FRAMES = 21
PARTS = (
    Part(stream="fmllr", dim=40),
    Part(stream="ivector", dim=100, table=True, framewise=False),
    Part(stream="logmel", dim=40, order=2, window=2),
)
SPEAKERS = 5000
RUN = 16


def write(folder: Path, size: int, dtype: str, per_shard: int, *, pdfs: int = 1) -> None:
    """Examples of noise, half of whose frames are of pdf-id 0, so that there is to learn."""
    rng = np.random.default_rng(0)
    layout = Layout(FRAMES, PARTS, dtype)
    rows = np.zeros(per_shard, layout.exact.row)
    for part in (PARTS[0], PARTS[2]):
        rows[part.stream] = rng.normal(size=rows[part.stream].shape).astype(np.float32)
    rows["ivector"] = rng.integers(0, SPEAKERS, size=(per_shard, 1))
    labels = rng.integers(0, pdfs, size=rows[LABELS].shape)
    rows[LABELS] = labels * rng.integers(0, 2, size=labels.shape)
    packed = pack(layout, deque([rows]))
    shards = [
        write_shard(
            folder / f"examples.{number:04}.npy", packed.rows[: min(per_shard, size - first)]
        )
        for number, first in enumerate(range(0, size, per_shard))
    ]
    scales = [] if packed.scales is None else [packed.scales] * len(shards)
    table = ArrayFile(folder / TABLE, (PARTS[1].dim,), layout.table_dtype)
    table.append(rng.normal(size=(SPEAKERS, PARTS[1].dim)))
    described = {"vectors": SPEAKERS, "dim": PARTS[1].dim, "sha256": table.close()}
    describe(folder, layout, shards, np.ones(pdfs, np.int64), scales=scales, table=described,
             bins=PARTS[2].dim)  # fmt: skip


def rates(dataset: Dataset, plan: Plan) -> tuple[float, float]:
    """Frames a second, and a processor second, of an epoch that is read twice; the second time
    counts."""
    for epoch in range(2):
        start, used = time.perf_counter(), time.process_time()
        for step in range(plan.steps):
            dataset.gather(plan.part(epoch=epoch, step=step))
    frames = plan.size * FRAMES
    return frames / (time.perf_counter() - start), frames / (time.process_time() - used)


def count(folder: Path, size: int, args: argparse.Namespace) -> None:
    """Reads and opens of learners that share a folder."""
    print("| read together | reads a batch of a learner | opens, all learners | in the last step |")
    print("|---|---|---|---|")
    for together in (1, RUN):
        plan = Plan(size=size, batch=args.batch, seed=1, together=together)
        learners = [Dataset(folder) for _ in range(args.learners)]
        before = 0
        for step in range(args.steps):
            before = sum(learner.rows.files.opened for learner in learners)
            for rank, learner in enumerate(learners):
                part = plan.part(epoch=0, step=step, rank=rank, learners=args.learners)
                learner.gather(part)
        opened = sum(learner.rows.files.opened for learner in learners)
        reads = sum(learner.rows.reads for learner in learners) / args.steps / args.learners
        print(f"| {together} | {reads:.1f} | {opened} | {opened - before} |")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=4_000_000)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--shard-frames", type=int, default=500_000)
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=["float16", "int8"])
    parser.add_argument("--learners", type=int, default=0, help="count for so many instead")
    parser.add_argument("--steps", type=int, default=40, help="with --learners")
    args = parser.parse_args()
    size = args.frames // FRAMES
    for dtype in args.dtype:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write(folder, size, dtype, args.shard_frames // FRAMES)
            if args.learners:
                count(folder, size, args)
                continue
            disk = sum(path.stat().st_size for path in folder.iterdir())
            print(f"{dtype}: {disk / size / FRAMES:.0f} bytes a frame on disk")
            print("| threads | read together | frames/s | frames a processor second |")
            print("|---|---|---:|---:|")
            for readers in (1, 2):
                for together in (1, RUN):
                    plan = Plan(size=size, batch=args.batch, seed=1, together=together)
                    found = rates(Dataset(folder, readers=readers), plan)
                    print(f"| {readers} | {together} |", "".join(f" {n:,.0f} |" for n in found))


if __name__ == "__main__":
    main()
