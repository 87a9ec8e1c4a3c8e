"""What all commands that train or align share: arguments, data, workspace, results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from hadpsgd.config import Config, load
from hadpsgd.config.alignment import KaldiAlignment, Ladder, Mono
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.errors import UserError
from hadpsgd.features.frontend import Frontend
from hadpsgd.files import file_name
from hadpsgd.gmm.checkpoint import Checkpoint
from hadpsgd.gmm.compilation import compile_graphs
from hadpsgd.gmm.data import Lang, fill, word_ids
from hadpsgd.gmm.em import Outcome, Passes, Search
from hadpsgd.gmm.model import Model
from hadpsgd.gmm.mono import Trained
from hadpsgd.gmm.pipeline import Pipeline
from hadpsgd.gmm.results import Result, check_failures, write_folder
from hadpsgd.gmm.workspace import Workspace
from hadpsgd.parallel import add_jobs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What all commands that train or align take."""
    parser.add_argument("--config", type=Path, required=True, help="config (YAML)")
    parser.add_argument("--data", type=Path, required=True, help="Kaldi data directory")
    parser.add_argument("--feats", type=Path, required=True, help="folder of its MFCC and CMVN")
    parser.add_argument("--lang", type=Path, required=True, help="lang folder")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    add_jobs(parser)


@dataclass(frozen=True)
class Session:
    """A command at work: its settings, data and scratch files."""

    config: Config
    options: Mono | Ladder
    lang: Lang
    data: Path
    space: Workspace
    words: list[list[int]]
    search: Search
    jobs: int
    out: Path
    checkpoint: Checkpoint

    @property
    def ladder(self) -> Ladder:
        """The settings of the ladder.

        Raises:
            UserError: the config trains monophones only.
        """
        if not isinstance(self.options, Ladder):
            raise UserError(
                f"alignment.kind is {self.options.kind}",
                where=self.config.name,
                fix="Triphones need kind tri, lda_mllt or sat",
            )
        return self.options

    def passes(self, pipeline: Pipeline) -> Passes:
        """Passes over the data set."""
        return Passes(self.space, pipeline, self.jobs)

    @contextmanager
    def part(self, numbers: NDArray[np.integer] | None) -> Iterator[Session]:
        """The same on these utterances alone [n]; None is all, which is this one."""
        if numbers is None:
            yield self
            return
        print(f"training on {len(numbers)} of {len(self.space)} utterances", file=sys.stderr)
        with self.space.part(self.out.parent, numbers) as space:
            yield replace(self, space=space, words=[self.words[n] for n in numbers.tolist()])

    def compile(self, trained: Trained) -> None:
        """Graphs of all utterances for a model that was trained on a part of them."""
        passes, model = self.passes(trained.state.passes.pipeline), trained.state.model
        compile_graphs(passes, self.words, self.lang, trained.tree, model.transitions)

    def aligned(
        self, passes: Passes, model: Model, search: Search | None = None, *, last: bool = True
    ) -> Outcome:
        """Align all utterances, say what failed; how well they fit, where it is the last time.

        Raises:
            UserError: more than `max_failed` did.
        """
        outcome = passes.align(model, search or self.search)
        check_failures(
            outcome,
            total=len(self.space),
            limit=self.options.max_failed.of(self.data.name),
            where=self.data,
        )
        return replace(outcome, fits=passes.fits(model)) if last else outcome

    def write(self, result: Result, outcome: Outcome) -> None:
        """Write the results."""
        phones = self.lang.folder / "phones.txt"
        write_folder(self.out, result, self.space, outcome, phones)
        self.checkpoint.remove()


@contextmanager
def session(
    args: argparse.Namespace, text: Path | None = None, *, model: Path | None = None
) -> Iterator[Session]:
    """Open data, lang folder and workspace; `text` replaces the transcripts.

    model: folder of a trained model, for what does not train; Kaldi's aligns with Kaldi's
    defaults. Its cmvn_opts say how features are normalised.

    Raises:
        UserError: something is missing, damaged or does not fit.
    """
    config = load(args.config)
    options = config.alignment
    if isinstance(options, KaldiAlignment) and model:
        options = Ladder(kind="sat", max_failed=options.max_failed, boost_silence=1.0)
    if not isinstance(options, Mono | Ladder):
        raise UserError(
            f"alignment.kind is {options.kind}",
            where=args.config,
            fix="Our own GMMs need kind mono, tri, lda_mllt or sat",
        )
    data = DataDir.read(args.data, audio=False, text=text is None)
    lang = Lang(args.lang)
    search = Search(
        beam=options.beam,
        retry_beam=options.retry_beam,
        boost=options.boost_silence,
        quiet=lang.optional_silence,
    )
    with threadpool_limits(1), Workspace(args.out.parent) as space:
        fill(space, data, args.feats, Frontend.unspliced(model))
        words = list(word_ids(data, space.names, lang, text))
        out = args.out
        checkpoint = Checkpoint(out.parent / f".{file_name(out.name)}.checkpoint")
        yield Session(
            config, options, lang, args.data, space, words, search, args.jobs, out, checkpoint
        )
