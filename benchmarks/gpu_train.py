"""`hadpsgd train` of the papers' model on one GPU, from examples on disk: frames a second.

    PYTHONPATH=workflow python3 benchmarks/gpu_train.py --batch 256 --steps 700
    PYTHONPATH=workflow python3 benchmarks/gpu_train.py --batch 8192 --steps 40

Writes examples of the papers' 260 inputs, in 8 bits, random but for many frames of pdf-id 0, and
trains `single` on them for one epoch of --steps steps. Says what the run says: frames a second over
the second half of the epoch, the share of time that waited for examples, and how it computed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import yaml
from egs_reading import FRAMES, write

MASKS = {"frequency_masks": 2, "frequency_width": 8, "time_masks": 1, "time_width": 5}


def train(folder: Path, args: argparse.Namespace, *, batch: int, precision: str) -> str:
    """One run; a row of the table."""
    name = f"{precision}-{batch}"
    egs, dev = folder / f"{name}.egs", folder / f"{name}.dev"
    for place, size in ((egs, batch * args.steps), (dev, 64)):
        place.mkdir()
        write(place, size, "int8", min(size, 8192), pdfs=args.pdfs)
    config = {
        "name": name,
        "results": str(folder / "results"),
        "corpus": {"kind": "builtin"},
        "alignment": {"kind": "sat"},
        "features": {"input": ["fmllr", "ivector", "logmel"]},
        "egs": {"frames": FRAMES},
        "model": {"layers": args.layers, "cells": args.cells, "projection": args.projection},
        "tracking": {"every_seconds": 0.5},
        "training": {
            "epochs": 1,
            "batch": batch,
            "precision": precision,
            "momentum": 0.9,
            "readers": args.readers,
            "device": args.device,
            "learning_rate": {"base": 0.01, "base_batch": batch},
            "spec_augment": MASKS if args.masks else {},
            "ivector_dropout": 0.5 if args.masks else 0.0,
            "runs": [{"strategy": "single"}],
        },
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    out = folder / name
    done = subprocess.run(
        [sys.executable, "-m", "hadpsgd", "train", "--config", path, "--run-id", "single",
         "--egs", egs, "--dev-egs", dev, "--out", out],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        return f"| {name} | exit {done.returncode}: {done.stderr[-1500:]} |"
    file = out / "metrics.jsonl"
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if "learner_frames_per_second" in row]
    late = rows[len(rows) // 2 :]
    speed = np.median([row["learner_frames_per_second"] for row in late])
    data = np.median([row["share_data"] for row in late])
    said = [line for line in done.stderr.splitlines() if "computes by" in line or "graph" in line]
    first = rows[0]["loss"]
    return f"| {name} | {speed:,.0f} | {data:.1%} | {first:.4f} | {len(rows)} | {'; '.join(said)} |"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, nargs="+", default=[8192, 1024, 256])
    parser.add_argument("--precision", nargs="+", default=["bf16"])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--readers", type=int, default=1)
    parser.add_argument("--masks", action="store_true", help="SpecAugment, dropout of i-vectors")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--cells", type=int, default=512)
    parser.add_argument("--projection", type=int, default=256)
    parser.add_argument("--pdfs", type=int, default=32_000)
    args = parser.parse_args()
    print("| run | frames/s | waited for examples | loss of the first row | rows | |")
    print("|---|---:|---:|---:|---:|---|")
    with tempfile.TemporaryDirectory() as folder:
        for batch in args.batch:
            for precision in args.precision:
                where = Path(folder)
                print(train(where, args, batch=batch, precision=precision), flush=True)


if __name__ == "__main__":
    main()
