"""`hadpsgd egs`: training examples, or held-out ones, of a data set."""

from __future__ import annotations

import argparse
from pathlib import Path

from hadpsgd.config import Config, load
from hadpsgd.config.stage import Stage
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.egs.make import make
from hadpsgd.errors import UserError
from hadpsgd.parallel import add_jobs


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", type=Path, required=True, help="config (YAML)")
    parser.add_argument("--data", type=Path, required=True, help="Kaldi data directory")
    parser.add_argument("--streams", type=Path, required=True, help="folder of <stream>/<set>/")
    parser.add_argument("--ali", type=Path, required=True, help="folder of ali.*.gz, final.mdl")
    parser.add_argument("--out", type=Path, required=True, help="folder of shards and meta.json")
    parser.add_argument(
        "--perturbed", type=Path, help="data directory of its copies (`hadpsgd perturb`)"
    )
    parser.add_argument(
        "--held-out",
        action="store_true",
        help="keep every frame: pad and mask the last subsequence instead of dropping it",
    )
    parser.add_argument(
        "--stage",
        metavar="CRITERION",
        help="examples of that stage of training.stages: as long as it says, the last one of an "
        "utterance padded, and beside those of training its denominator",
    )
    add_jobs(parser)


def _stage(config: Config, criterion: str) -> Stage:
    """The stage of that name; raises UserError where the config has none."""
    stages = {stage.criterion: stage for stage in config.training.stages}
    if criterion not in stages:
        known = ", ".join(stages) or "none"
        raise UserError(f"--stage {criterion}: training.stages has {known}")
    return stages[criterion]


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    config = load(args.config)
    data = DataDir.read(args.data, audio=False, text=False)
    copies = None
    if args.perturbed is not None:
        copies = DataDir.read(args.perturbed, audio=False, text=False)
    elif config.corpus.versions > 1 and not args.held_out:
        raise UserError(
            "corpus.speeds or corpus.noise asks for copies, and there is no --perturbed",
            where=args.config,
            fix="`hadpsgd perturb` makes that data",
        )
    make(
        config,
        data,
        streams=args.streams,
        ali=args.ali,
        out=args.out,
        held_out=args.held_out,
        copies=copies,
        stage=_stage(config, args.stage) if args.stage else None,
        jobs=args.jobs,
    )
    return 0
