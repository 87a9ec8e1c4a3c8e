"""`hadpsgd export`: one folder with all that recognises speech, from a finished run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hadpsgd import config, run_folder
from hadpsgd.scoring.bundle.export import Run, export


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("run", help="folder RESULTS/NAME/runs/KEY of a run, or KEY")
    parser.add_argument("--out", type=Path, required=True, help="the bundle, a folder")
    parser.add_argument(
        "--results", type=Path, default=Path("results"), help="where KEY is looked for (results)"
    )
    parser.add_argument(
        "--licence", default="", help="licence of the training data, to be told to users"
    )
    parser.add_argument(
        "--onnx", action="store_true", help="the network as ONNX, too (needs the package onnx)"
    )


def run(args: argparse.Namespace) -> int:
    """Write the folder OUT."""
    folder = run_folder.find(args.run, args.results)
    run_folder.check_finished(
        folder, ("config.yaml", "final.pt"), "Only finished runs are exported"
    )
    trained = Run(folder, config.load(folder / "config.yaml"))
    manifest = export(trained, args.out, args.licence, onnx=args.onnx)
    size = sum(file.bytes for file in manifest.files.values())
    rates = "".join(
        f", {name} {score.wer:.2f} %"
        for name, score in manifest.scores.items()
        if score.wer is not None
    )
    print(
        f"{args.out}: {len(manifest.files)} files, {size / 2**20:.1f} MiB, language model weight"
        f" {manifest.lm_weight:g}, word penalty {manifest.word_penalty:g}{rates}",
        file=sys.stderr,
    )
    return 0
