"""The folder that a stage leaves, in Kaldi's formats, and what it says about failures."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd import kaldi_io
from hadpsgd.corpus.lang.directory import read_symbols
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_folder
from hadpsgd.gmm import event_map, model
from hadpsgd.gmm.em import Outcome
from hadpsgd.gmm.event_map import Tree
from hadpsgd.gmm.model import Model
from hadpsgd.gmm.workspace import Workspace
from hadpsgd.kaldi_binary import matrix_bytes

_SHOWN = 5


@dataclass(frozen=True)
class Front:
    """How features became the Gaussians' input: deltas, or splicing and a matrix (LDA+MLLT)."""

    context: int = 0
    matrix: NDArray[np.float32] | None = None
    full: NDArray[np.float32] | None = None
    """All rows of LDA, the rejected ones too (full.mat)."""

    def write(self, folder: Path) -> None:
        """Write cmvn_opts and delta_opts, or splice_opts, final.mat and full.mat."""
        (folder / "cmvn_opts").write_text("--norm-means=true --norm-vars=false\n")
        if self.matrix is None:
            (folder / "delta_opts").write_text("\n")
            return
        opts = f"--left-context={self.context} --right-context={self.context}\n"
        (folder / "splice_opts").write_text(opts)
        (folder / "final.mat").write_bytes(matrix_bytes(self.matrix.astype(np.float32)))
        if self.full is not None:
            (folder / "full.mat").write_bytes(matrix_bytes(self.full.astype(np.float32)))


@dataclass(frozen=True)
class Result:
    """What a stage has made."""

    tree: Tree
    model: Model
    front: Front
    transforms: dict[str, NDArray[np.float32]] | None = None
    alignment_model: Model | None = None
    trained_in: Path | None = None
    """Folder in which the model was trained, where that is not this one: its final.occs holds."""


def check_failures(outcome: Outcome, *, total: int, limit: float, where: Path) -> None:
    """Count and name what did not align.

    Raises:
        UserError: more than `limit` of `total` utterances failed.
    """
    for name, why in list(outcome.failed.items())[:_SHOWN]:
        print(f"warning: {where}: utterance {name} not aligned: {why}", file=sys.stderr)
    failed = len(outcome.failed)
    if failed > _SHOWN:
        print(f"warning: {where}: and {failed - _SHOWN} others", file=sys.stderr)
    if failed > limit * total:
        name, why = next(iter(outcome.failed.items()))
        raise UserError(
            f"{failed} of {total} utterances cannot be aligned, more than alignment.max_failed "
            f"= {limit:g} (first: {name}: {why})",
            where=where,
            fix="Check transcripts and lexicon, or raise it",
        )


def check_phones(*, ours: Path, lang: Path, fix: str = "") -> None:
    """Refuse a model whose phones are numbered otherwise than the lang folder's.

    Disambiguation symbols may differ: they depend on the lexicon. `fix` may say better
    what to do.

    Raises:
        UserError: the first phone that differs.
    """
    tables = [
        {name: number for name, number in read_symbols(path).items() if name[0] != "#"}
        for path in (ours, lang)
    ]
    if tables[0] != tables[1]:
        name = sorted(set(tables[0].items()) ^ set(tables[1].items()))[0][0]
        raise UserError(
            f"phone '{name}' is not the same as in {lang}",
            where=ours,
            fix=fix or "Use the lang folder that the model was trained with",
        )


def write_folder(
    out: Path, result: Result, space: Workspace, outcome: Outcome, phones: Path
) -> None:
    """Write final.mdl, tree, ali.1.gz, num_jobs, phones.txt and what belongs to the features.

    Also final.occs, frames of each pdf in the alignments of training; alignment.json: how many
    utterances aligned, were retried or failed, and why; scores.txt and fits.txt: log-probability
    and fit a frame of every utterance.
    """
    with atomic_folder(out) as folder:
        (folder / "final.mdl").write_bytes(model.content(result.model))
        (folder / "tree").write_bytes(event_map.content(result.tree))
        if result.alignment_model is not None:
            content = model.content(result.alignment_model)
            (folder / "final.alimdl").write_bytes(content)
        occupancies = folder / "final.occs"
        if result.trained_in is None:
            occupancies.write_text(_occupancies(space, result.model))
        elif (result.trained_in / occupancies.name).is_file():
            shutil.copyfile(result.trained_in / occupancies.name, occupancies)
        if result.transforms:
            kaldi_io.write_archive(folder / "trans.1", sorted(result.transforms.items()))
        (folder / "num_jobs").write_text("1\n")
        shutil.copyfile(phones, folder / "phones.txt")
        result.front.write(folder)
        kaldi_io.write_archive(folder / "ali.1.gz", space.aligned())
        write_outcome(folder, outcome, len(space))


def _occupancies(space: Workspace, trained: Model) -> str:
    """Frames of each pdf as a vector in Kaldi's text form."""
    counts = np.zeros(trained.mixtures.num_pdfs, np.int64)
    for _, ids in space.aligned():
        counts += np.bincount(trained.transitions.pdf[ids], minlength=len(counts))
    return f" [ {' '.join(map(str, counts))} ]\n"


def write_outcome(folder: Path, outcome: Outcome, utterances: int, **more: object) -> None:
    """Write alignment.json, with `more` in it, scores.txt and fits.txt."""
    for table, values in (("scores.txt", outcome.per_frame), ("fits.txt", outcome.fits)):
        rows = (f"{name} {value:.4f}\n" for name, value in values.items())
        (folder / table).write_text("".join(rows), "utf-8")
    summary = {
        "utterances": utterances,
        "aligned": len(outcome.per_frame),
        "frames": outcome.frames,
        "score_a_frame": outcome.score / max(outcome.frames, 1),
        **more,
        "retried": {name: round(beam, 2) for name, beam in outcome.needed.items()},
        "failed": outcome.failed,
    }
    (folder / "alignment.json").write_text(json.dumps(summary, indent=2) + "\n", "utf-8")
