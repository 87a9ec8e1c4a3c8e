"""Runs of virtual learners on random examples: updates a processor second and memory, by learners.

    python benchmarks/virtual_runs.py --learners 16 64

Each is `hadpsgd train` in a process of its own: reading examples, gradients, mixing, record,
held-out scores and checkpoints count; starting Python does not. Memory is the peak of the process;
as models a learner, less that of one learner, for each learner more.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import yaml

from hadpsgd.egs.layout import Layout
from hadpsgd.egs.shards import describe, write_shard

FRAMES, DIM, PDFS = 21, 120, 400
LABELS = 10
"""Of the pdf-ids, those that occur: a run that learnt nothing would be refused."""
TRAIN = """
import resource, sys, time
from hadpsgd.cli import main
import hadpsgd.training.command
begin = time.process_time()
code = main(sys.argv[1:])
print(time.process_time() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
sys.exit(code)
"""


def write_examples(folder: Path, subsequences: int) -> Path:
    """Random frames, labelled by the largest of their first values."""
    folder.mkdir()
    draws = np.random.default_rng(subsequences)
    features = draws.normal(size=(subsequences, FRAMES, DIM)).astype(np.float32)
    labels = features[..., :LABELS].argmax(-1)
    layout = Layout.plain(frames=FRAMES, dim=DIM)
    rows = np.zeros(subsequences, layout.row)
    rows["logmel"], rows["labels"] = features, labels
    shard = write_shard(folder / "examples.0000.npy", rows)
    describe(folder, layout, [shard], np.bincount(labels.ravel(), minlength=PDFS))
    return folder


def measure(
    args: argparse.Namespace, *, strategy: str, learners: int, folder: Path
) -> tuple[float, float, float]:
    """Updates of all learners in a processor second; peak memory and a model, in MiB."""
    run: dict[str, object] = {"name": "r", "launcher": "virtual"}
    run |= {"strategy": strategy, "learners": learners}
    if strategy == "hadpsgd":
        run["super_learner"] = 4
    config = {
        "name": f"{strategy}-{learners}",
        "results": str(folder / "results"),
        "corpus": {"kind": "builtin"},
        "model": {"layers": args.layers, "cells": args.cells, "projection": args.cells},
        "training": {
            "runs": [run],
            "epochs": args.epochs,
            "batch": args.batch * learners,
            "learning_rate": {"base": 0.1, "base_batch": args.batch * learners},
            "threads": args.threads,
        },
        "tracking": {"uri": "none"},
    }
    file = folder / f"{strategy}-{learners}.yaml"
    file.write_text(yaml.safe_dump(config))
    egs = write_examples(folder / f"{file.stem}-egs", args.batch * learners * args.steps)
    out = folder / f"{file.stem}-out"
    command = [sys.executable, "-c", TRAIN, "train", "--config", str(file), "--run-id", "r"]
    command += ["--egs", str(egs), "--dev-egs", str(egs), "--out", str(out)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    summary = json.loads((out / "summary.json").read_text())
    seconds, peak = map(float, done.stdout.split()[-2:])
    updates = args.steps * args.epochs * learners / seconds
    return updates, peak / 1024, summary["parameters"] * 4 / 2**20


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learners", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--strategies", nargs="+", default=["ssgd", "adpsgd", "d1d", "hadpsgd"])
    parser.add_argument("--steps", type=int, default=10, help="of a learner in an epoch")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4, help="of a learner")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--cells", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _, alone, model = measure(args, strategy="single", learners=1, folder=folder)
        print(f"model {model:.1f} MiB; one learner {alone:.0f} MiB; load {os.getloadavg()[0]:.1f}")
        print(
            "| strategy | learners | updates/processor s | memory, MiB | models a learner | load |"
        )
        print("|---|---:|---:|---:|---:|---:|", flush=True)
        for strategy in args.strategies:
            for learners in args.learners:
                speed, peak, _ = measure(args, strategy=strategy, learners=learners, folder=folder)
                models = (peak - alone) / (learners - 1) / model
                load = os.getloadavg()[0]
                print(
                    f"| {strategy} | {learners} | {speed:.0f} | {peak:.0f} | {models:.1f} "
                    f"| {load:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
