"""Alignments by a trained network (Kaldi's steps/nnet/align.sh).

Viterbi over the graphs that a GMM's alignments have too, transition probabilities of final.mdl
included, with the network's log-posteriors less log-priors as log-likelihoods.
"""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hadpsgd.alignment.agreement import agreement
from hadpsgd.alignment.archives import copy_model, read_alignments
from hadpsgd.config.realign import Realign
from hadpsgd.decoding.decode import Scorer
from hadpsgd.decoding.scores import LongScores
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_folder, write_text
from hadpsgd.gmm import event_map, transition_model, viterbi
from hadpsgd.gmm.data import Lang
from hadpsgd.gmm.em import Outcome, Search, by_state, sort_out
from hadpsgd.gmm.fit import FRAMES, normaliser, some
from hadpsgd.gmm.results import check_failures, check_phones, write_outcome
from hadpsgd.gmm.training_graph import GraphCompiler
from hadpsgd.gmm.update import scaled_scores
from hadpsgd.kaldi_io import Writer
from hadpsgd.parallel import map_in_order
from hadpsgd.progress import Progress

Floats = NDArray[np.float32]
Spoken = tuple[str, list[int]]
"""An utterance and its words (word-ids)."""
Aligned = tuple[Outcome, list[tuple[str, NDArray[np.int32]]]]
"""What came of some utterances, and (utterance, transition-ids [frames]) of those that aligned."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """What is read and written."""

    data: Path
    ali: Path
    """Tree and final.mdl; the alignments with them, if any, are compared."""
    lang: Path
    out: Path


_DOUBTFUL = 0.5  # share of frames: networks that learnt something keep far more
_TOGETHER = 32  # utterances that a process aligns at a time


def compiler_of(ali: Path, lang: Lang) -> GraphCompiler:
    """Makes the graphs, with tree and transition model of a folder of alignments.

    Raises:
        UserError: a file is missing or damaged; the lang folder has other phones.
    """
    if (ali / "phones.txt").is_file():
        check_phones(ours=ali / "phones.txt", lang=lang.folder / "phones.txt")
    model = transition_model.read(ali / "final.mdl")
    return GraphCompiler(lang.lexicon, event_map.read(ali / "tree"), model)


@dataclass(frozen=True)
class Aligner:
    """Makes, in each process, the function that aligns utterances."""

    make_scorer: Callable[[], Scorer]
    compiler: GraphCompiler
    options: Realign

    def __call__(self) -> Callable[[Sequence[Spoken]], Aligned]:
        """The function that aligns utterances.

        Raises:
            UserError: scores are broken, or those of another model (names the utterance).
        """
        scorer, model = self.make_scorer(), self.compiler.model
        search = Search(beam=self.options.beam, retry_beam=self.options.retry_beam)
        # the last beam only says why an utterance fails
        beams = (search.beam, search.retry_beam, math.inf)
        scores_of_ids = scaled_scores(model)

        def align(batch: Sequence[Spoken]) -> Aligned:
            names = [name for name, _ in batch]
            graphs = [self.compiler(words) for _, words in batch]
            states = [np.unique(graph.pdfs[1:], return_inverse=True) for graph in graphs]
            scored = [
                self._likelihoods(scorer, name, used)
                for name, (used, _) in zip(names, states, strict=True)
            ]
            likelihoods, sums = zip(*scored, strict=True)
            lengths = [len(scores) for scores in likelihoods]

            def emission(u: int) -> Floats:
                return by_state(likelihoods[u], states[u][1])

            found = viterbi.align(graphs, lengths, emission, scores_of_ids, beams)
            bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
            outcome, _ = sort_out(names, bounds, graphs, found, search)
            kept = []
            for u, (name, result) in enumerate(zip(names, found, strict=True)):
                if result and name not in outcome.failed:
                    kept.append((name, result.ids))
                    pdfs = np.searchsorted(states[u][0], model.pdf[result.ids])
                    outcome.fits[name] = self._fit(likelihoods[u], sums[u], pdfs)
            return outcome, kept

        return align

    def _fit(self, likelihoods: Floats, sums: Floats, columns: NDArray[np.int64]) -> float:
        """As `hadpsgd.gmm.fit` has it, among all pdfs; `columns` are those aligned to [frames]."""
        frames = some(len(likelihoods), most=FRAMES)
        own = likelihoods[frames, columns[frames]] / self.options.acoustic_scale
        return float(np.mean(own - sums))

    def _likelihoods(
        self, scorer: Scorer, utterance: str, pdfs: NDArray[np.int32]
    ) -> tuple[Floats, Floats]:
        """Scaled log-likelihoods of some pdfs: float32 [frames, pdfs]; of all pdfs together, not
        scaled, at some frames (`FRAMES`)."""
        where = f"utterance {utterance}"
        try:
            scores = scorer(utterance)
        except UserError as error:
            raise UserError(str(error), where=None if where in str(error) else where) from None
        if scores.shape[1] != self.compiler.model.num_pdfs:
            raise UserError(
                f"the network has {scores.shape[1]} outputs, and final.mdl "
                f"{self.compiler.model.num_pdfs} pdf-ids",
                fix="Give tree and final.mdl of the alignments that it was trained on",
            )
        rows = scores.rows if isinstance(scores, LongScores) else max(len(scores), 1)
        frames, used, sums = some(len(scores), most=FRAMES), [], []
        for begin in range(0, max(len(scores), 1), rows):  # scores are made once
            part = scores[begin : begin + rows]
            used.append(part[:, pdfs])
            here = frames[(begin <= frames) & (frames < begin + rows)]
            sums.append(normaliser(part[here - begin]))
        kept = np.concatenate(used) * np.float32(self.options.acoustic_scale)
        if not np.isfinite(kept).all():
            raise UserError("the network's scores are not finite", where=where)
        return kept, np.concatenate(sums)


def realign(
    aligner: Aligner,
    utterances: Iterator[Spoken],
    total: int,
    places: Places,
    *,
    jobs: int,
    max_failed: float,
) -> Outcome:
    """Write a folder of alignments: ali.1.gz, alignment.json, scores.txt, fits.txt, and the
    model.

    alignment.json says too how many frames keep the pdf-id of the alignments before (same_pdf).

    Raises:
        UserError: more than `max_failed` utterances cannot be aligned, or something is broken.
    """
    outcome = Outcome()
    progress = Progress("realign", total, "utterances")
    batches = iter(lambda: list(islice(utterances, _TOGETHER)), [])
    with atomic_folder(places.out) as folder:
        with Writer(ark=folder / "ali.1.gz") as writer:
            for part, found in map_in_order(aligner, batches, jobs):
                outcome.add(part)
                for name, ids in found:
                    writer.write(name, ids)
                progress.add(len(part.per_frame) + len(part.failed))
        check_failures(outcome, total=total, limit=max_failed, where=places.data)
        copy_model(source=places.ali, folder=folder)
        shutil.copyfile(places.lang / "phones.txt", folder / "phones.txt")
        write_text(folder / "num_jobs", "1\n")
        write_outcome(folder, outcome, total, **_compared(places.ali, folder))
    progress.end()
    return outcome


def _compared(before: Path, after: Path) -> dict[str, Any]:
    """Share of the frames whose pdf-id stays; nothing where there was no alignment."""
    if not any(before.glob("ali.*.gz")):
        return {}
    model, ones = read_alignments(before)
    share = agreement(ones, read_alignments(after)[1], model.pdf)
    if share is None:
        return {}
    print(f"realign: {share:.2%} of the frames keep their pdf-id", file=sys.stderr)
    if share < _DOUBTFUL:
        print(
            "warning: these labels are hardly those before: was the network trained enough?",
            file=sys.stderr,
        )
    return {"same_pdf": share}
