"""`hadpsgd import-features`: a stream of a data set from Kaldi's archives."""

from __future__ import annotations

import argparse
from pathlib import Path

from hadpsgd.config import Config, load
from hadpsgd.config.imports import FeatureImport, FmllrImport, IvectorImport
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.errors import UserError
from hadpsgd.features.fmllr import apply, read_transforms
from hadpsgd.features.frontend import Frontend, Inputs
from hadpsgd.features.importing import import_features, import_ivectors, in_set
from hadpsgd.parallel import add_jobs


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", type=Path, required=True, help="config (YAML)")
    parser.add_argument(
        "--stream", choices=["logmel", "mfcc", "fmllr", "ivector"], required=True,
        help="stream that features.imports names",
    )  # fmt: skip
    parser.add_argument("--data", type=Path, required=True, help="Kaldi data directory")
    parser.add_argument("--feats", type=Path, help="folder of MFCC, where transforms are applied")
    parser.add_argument(
        "--trans", type=Path, help="FMLLR transforms of this set instead of features.imports'"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the stream's set")
    add_jobs(parser)


def import_stream(
    config: Config,
    stream: str,
    data: DataDir,
    *,
    feats: Path | None,
    trans: Path | None = None,
    out: Path,
    jobs: int,
) -> None:
    """Import one stream of one data set as the config says; `trans` are its FMLLR transforms.

    Raises:
        UserError: the config does not import that stream, or what it names is broken.
    """
    imports, limit = config.features.imports, config.features.max_skipped.of(data.path.name)
    pipes = config.features.allow_pipes
    options = getattr(imports, stream)
    if options is None:
        raise UserError(f"features.imports.{stream} is not set", where=f"config {config.name}")
    if isinstance(options, IvectorImport):
        import_ivectors(options, data, out, limit, allow_pipes=pipes)
    elif isinstance(options, FmllrImport) and options.trans and options.model:
        if feats is None:
            raise UserError("transforms are applied to MFCC", fix="Give --feats")
        frontend = Frontend.read(Path(in_set(options.model, data)))
        places = [trans] if trans else [Path(in_set(place, data)) for place in options.trans]
        transforms = read_transforms(*places, allow_pipes=pipes)
        apply(Inputs(data, feats, frontend, limit), transforms, out, jobs)
    elif isinstance(options, FmllrImport):
        adapted = FeatureImport(feats=options.feats or "")
        import_features(adapted, data, out, limit, allow_pipes=pipes)
    else:
        import_features(options, data, out, limit, allow_pipes=pipes)


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    config = load(args.config)
    data = DataDir.read(args.data, audio=False, text=False)
    import_stream(
        config,
        args.stream,
        data,
        feats=args.feats,
        trans=args.trans,
        out=args.out,
        jobs=args.jobs,
    )
    return 0
