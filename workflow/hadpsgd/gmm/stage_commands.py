"""The upper stages of the ladder, each from the folder of the stage before."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hadpsgd.config.alignment import TreeStage
from hadpsgd.errors import UserError
from hadpsgd.gmm import lda, mllt
from hadpsgd.gmm import model as models
from hadpsgd.gmm.collect import lda_sums, mllt_sums
from hadpsgd.gmm.front import pipeline_of, read_front
from hadpsgd.gmm.mllt import transform_means
from hadpsgd.gmm.model import Model
from hadpsgd.gmm.pipeline import Pipeline, deltas
from hadpsgd.gmm.results import Front, Result, check_phones
from hadpsgd.gmm.sat import adapt_and_align, alignment_model, train_sat
from hadpsgd.gmm.session import Session, add_arguments, session
from hadpsgd.gmm.subsets import chosen
from hadpsgd.gmm.training import State
from hadpsgd.gmm.tree_stage import Setting, train_stage
from hadpsgd.kaldi_io import iterate
from hadpsgd.skipped import check_skipped

MLLT = frozenset((2, 4, 6, 12))
SAT_POWER = 0.2
"""Power of counts by which pdfs get Gaussians in train_sat.sh."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of each of the commands."""
    add_arguments(parser)
    parser.add_argument("--ali", type=Path, required=True, help="folder of the stage before")


def load_previous(work: Session, folder: Path) -> Model:
    """The model before, its alignments put into the workspace.

    Raises:
        UserError: files are missing or damaged, phones differ, too many utterances lack one.
    """
    check_phones(ours=folder / "phones.txt", lang=work.lang.folder / "phones.txt")
    files = sorted(folder.glob("ali.*.gz"))
    if not files:
        raise UserError("no ali.*.gz", where=folder, fix="Train or align the stage before")
    previous = models.read(folder / "final.mdl")
    items = (item for path in files for item in iterate(path, "ints"))
    missing = work.space.load_alignments(items)
    check_skipped(
        missing,
        total=len(work.space),
        limit=work.options.max_failed.of(work.data.name),
        what="utterances have no alignment of this length",
        where=folder,
        fix="Align this data set with the stage before",
    )
    return previous


def _setting(work: Session, name: str, options: TreeStage) -> Setting:
    return Setting(
        name=name,
        options=options,
        lang=work.lang,
        words=work.words,
        search=work.search,
        seed=work.config.seed,
        checkpoint=work.checkpoint,
    )


def run_tri(args: argparse.Namespace) -> int:
    """Triphones on deltas."""
    with session(args) as work:
        previous = load_previous(work, args.ali)
        pipeline, options = deltas(dim=work.space.dim), work.ladder.tri
        with work.part(chosen(work.space, utterances=options.utterances)) as part:
            setting = replace(_setting(part, "tri", options), mixed_first=True)
            trained = train_stage(setting, part.passes(pipeline), previous.transitions)
        if part is not work:
            work.compile(trained)
        model = trained.state.model
        outcome = work.aligned(work.passes(pipeline), model)
        work.write(Result(trained.tree, model, Front()), outcome)
    return 0


def run_lda(args: argparse.Namespace) -> int:
    """Triphones on spliced frames after LDA and MLLT."""
    with session(args) as work:
        previous = load_previous(work, args.ali)
        options = work.ladder.lda_mllt
        wide = work.passes(Pipeline(options.context))
        quiet = work.lang.silence
        found = lda.estimate(lda_sums(wide, previous.transitions, quiet), options.dim)
        passes = work.passes(Pipeline(options.context, found.matrix))
        setting = _setting(work, "lda-mllt", options)
        hook = _MlltHook(quiet)
        trained = train_stage(setting, passes, previous.transitions, hook)
        passes, model = trained.state
        front = Front(options.context, passes.pipeline.matrix, found.full)
        work.write(Result(trained.tree, model, front), work.aligned(passes, model))
    return 0


@dataclass(frozen=True)
class _MlltHook:
    """In some iterations a new MLLT is put on top of the transform, and the means follow."""

    quiet: tuple[int, ...]

    def __call__(self, iteration: int, state: State) -> State:
        if iteration not in MLLT:
            return state
        passes, model = state
        found = mllt.estimate(model.mixtures, mllt_sums(passes, model, self.quiet))
        print(f"lda-mllt: MLLT, gain a frame {found.gain:.4f}", file=sys.stderr)
        old = passes.pipeline.matrix
        assert old is not None
        pipeline = replace(passes.pipeline, matrix=(found.matrix @ old).astype(np.float32))
        moved = Model(model.transitions, transform_means(model.mixtures, found.matrix))
        return State(replace(passes, pipeline=pipeline), moved)


def run_sat(args: argparse.Namespace) -> int:
    """Speaker-adaptive training on top of LDA+MLLT."""
    front = read_front(args.ali)
    with session(args) as work:
        previous = load_previous(work, args.ali)
        passes = work.passes(pipeline_of(front, work.space.dim, args.ali))
        setting = replace(_setting(work, "sat", work.ladder.sat), power=SAT_POWER)
        trained = train_sat(work, setting, passes, previous)
        passes, model = trained.state
        aligner = alignment_model(passes, model, setting.options.variance_prior)
        found, outcome = adapt_and_align(work, passes, model, aligner)
        result = Result(
            trained.tree, model, front, transforms=found.transforms, alignment_model=aligner
        )
        work.write(result, outcome)
    return 0
