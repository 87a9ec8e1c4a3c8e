"""`hadpsgd align`: alignments, and FMLLR transforms, of a data set with a trained model.

With a speaker-adapted model (final.alimdl) utterances are aligned on unadapted features first,
transforms are estimated, and all is aligned again, as Kaldi's align_fmllr.sh does. For test data
`--text` takes the words of a first decoding.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from hadpsgd.config import load
from hadpsgd.gmm import event_map, model
from hadpsgd.gmm.compilation import compile_graphs
from hadpsgd.gmm.front import check_dim, pipeline_of, read_front
from hadpsgd.gmm.results import Result, check_phones
from hadpsgd.gmm.sat import adapt_and_align
from hadpsgd.gmm.session import add_arguments, session


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_arguments(parser)
    parser.add_argument("--model", type=Path, required=True, help="folder of final.mdl and tree")
    parser.add_argument("--text", type=Path, help="transcripts instead of the data directory's")


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    check_phones(
        ours=args.model / "phones.txt", lang=args.lang / "phones.txt", fix=_other_lang(args.config)
    )
    trained = model.read(args.model / "final.mdl")
    tree = event_map.read(args.model / "tree")
    front = read_front(args.model)
    aligner = args.model / "final.alimdl"
    result = Result(tree, trained, front, trained_in=args.model)
    with session(args, args.text, model=args.model) as work:
        pipeline = pipeline_of(front, work.space.dim, args.model)
        check_dim(pipeline, trained, args.model / "final.mdl")
        passes = work.passes(pipeline)
        compile_graphs(passes, work.words, work.lang, tree, trained.transitions)
        if aligner.is_file():
            adapted, outcome = adapt_and_align(work, passes, trained, model.read(aligner))
            result = replace(result, transforms=adapted.transforms)
        else:
            outcome = work.aligned(passes, trained)
        work.write(result, outcome)
    return 0


def _other_lang(config: Path) -> str:
    """What to do where Kaldi's model adapts and the lang folder is ours; else empty."""
    settings = load(config)
    if not settings.features.imports.fmllr or settings.alignment.kind == "kaldi":
        return ""
    return (
        "features.imports.fmllr.model adapts the copies of corpus.speeds and corpus.noise and knows"
        f" other phones than the lang folder that alignment.kind {settings.alignment.kind} makes:"
        " set alignment.kind kaldi with the model's lang_dir, or use egs.tempos and no copies"
    )
