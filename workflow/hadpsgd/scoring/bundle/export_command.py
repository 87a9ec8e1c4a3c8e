"""`hadpsgd export`: one folder with all that recognises speech, from a finished run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hadpsgd import config
from hadpsgd.config import Config
from hadpsgd.errors import UserError
from hadpsgd.scoring.bundle.chosen import CONFIG, find
from hadpsgd.scoring.bundle.export import Run, export
from hadpsgd.scoring.bundle.manifest import Manifest


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "run",
        help="folder RESULTS/NAME/runs/KEY of a run, RESULTS/NAME/score/KEY of an ensemble, or KEY",
    )
    parser.add_argument("--out", type=Path, required=True, help="the bundle, a folder")
    parser.add_argument(
        "--results", type=Path, default=Path("results"), help="where KEY is looked for (results)"
    )
    parser.add_argument(
        "--licence", default="", help="licence of the training data, to be told to users"
    )
    parser.add_argument(
        "--extractor",
        help="folder of Kaldi's i-vector extractor, of a run trained with imported i-vectors whose "
        "config does not name it",
    )
    parser.add_argument(
        "--onnx", action="store_true", help="the network as ONNX, too (needs the package onnx)"
    )


def run(args: argparse.Namespace) -> int:
    """Write the folder OUT."""
    chosen = find(args.run, args.results)
    trained = replace(chosen, config=_with_extractor(chosen.config, args.extractor))
    manifest = export(trained, args.out, args.licence, onnx=args.onnx)
    if former := _former(trained):
        print(former, file=sys.stderr)
    size = sum(file.bytes for file in manifest.files.values())
    rates = "".join(
        f", {name} {score.wer:.2f} %"
        for name, score in manifest.scores.items()
        if score.wer is not None
    )
    print(
        f"{args.out}: {len(manifest.files)} files, {size / 2**20:.1f} MiB, language model weight"
        f" {manifest.lm_weight:g}, word penalty {manifest.word_penalty:g}"
        f"{_neural(manifest)}{rates}",
        file=sys.stderr,
    )
    return 0


def _former(run: Run) -> str:
    """That a run is of former settings, as far as its results folder tells; else empty."""
    if run.folders[0].parent.name != "runs":  # a copy
        return ""
    try:
        now = config.load(run.out / CONFIG)  # of the workflow's last start
    except (UserError, OSError):  # of another version, or not there
        return ""
    runs = [config.run_key(now, each.id) for each in now.training.members]
    not_held = config.keys_with_gmm(now)
    keys = [*runs, *(key for key in config.ensemble_keys(now).values() if key not in not_held)]
    if run.key in keys:
        return ""
    return f"{run.key} is of other settings than the runs of the last start: {_some(keys)}"


def _some(keys: Sequence[str]) -> str:
    return ", ".join(keys[:5]) + ", ..." * (len(keys) > 5)


def _neural(manifest: Manifest) -> str:
    return f", neural weight {manifest.neural_weight:g}" if manifest.neural_weight else ""


def _with_extractor(trained: Config, extractor: str | None) -> Config:
    """The run's config, which may be older than its import's key `extractor`."""
    if extractor is None:
        return trained
    imports = trained.features.imports
    if imports.ivector is None:
        what = "--extractor is for imported i-vectors, and the run imports none"
        raise UserError(what, where=f"config {trained.name}")
    ivector = imports.ivector.model_copy(update={"extractor": extractor})
    imports = imports.model_copy(update={"ivector": ivector})
    features = trained.features.model_copy(update={"imports": imports})
    return trained.model_copy(update={"features": features})
