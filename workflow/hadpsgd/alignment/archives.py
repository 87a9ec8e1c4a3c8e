"""Alignments on disk: `ali.*.gz` (transition-ids) beside the `final.mdl` that they belong to."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.corpus.tables import read_table
from hadpsgd.errors import UserError
from hadpsgd.gmm import transition_model
from hadpsgd.gmm.transition_model import TransitionModel
from hadpsgd.kaldi_io import iterate

Ids = NDArray[np.int32]
_MODEL = (
    *("final.mdl", "final.alimdl", "tree", "final.occs", "final.mat", "full.mat"),
    *("splice_opts", "cmvn_opts", "delta_opts"),
)


def copy_model(*, source: Path, folder: Path) -> None:
    """Copy what lies beside alignments and belongs to their model."""
    for name in _MODEL:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)


def alignment_files(folder: Path) -> list[Path]:
    """ali.1.gz, ali.2.gz, ... in their order.

    Raises:
        UserError: there are none.
    """
    names = {path: re.fullmatch(r"ali\.(\d+)\.gz", path.name) for path in folder.glob("ali.*.gz")}
    files = sorted((int(match[1]), path) for path, match in names.items() if match)
    if not files:
        raise UserError("no ali.*.gz", where=folder, fix="Give a folder of alignments")
    return [path for _, path in files]


def read_alignments(folder: Path) -> tuple[TransitionModel, Iterator[tuple[str, Ids]]]:
    """The transition model, and (utterance, transition-ids [frames]), streaming.

    Raises:
        UserError: a file is missing or broken, or a transition-id is not the model's.
    """
    model = transition_model.read(folder / "final.mdl")
    files = alignment_files(folder)

    def alignments() -> Iterator[tuple[str, Ids]]:
        for path in files:
            for utterance, ids in iterate(path, "ints"):
                if len(ids) and not 1 <= ids.min() <= ids.max() <= model.num_ids:
                    raise UserError(
                        f"transition-ids from {ids.min()} to {ids.max()}, "
                        f"and final.mdl has 1 to {model.num_ids}",
                        where=f"{path}, utterance {utterance}",
                        fix="The alignments were made with another model",
                    )
                yield utterance, ids

    return model, alignments()


def read_fits(folder: Path) -> dict[str, float]:
    """How well every utterance fits (`hadpsgd.gmm.fit`); none where there is no fits.txt (Kaldi's).

    Raises:
        UserError: a line that is not an utterance and a finite number.
    """
    path = folder / "fits.txt"
    if not path.is_file():
        return {}
    try:
        fits = {name: float(value) for name, value in read_table(path).items()}
    except ValueError as error:
        raise UserError(f"not a number: {error}", where=path) from None
    if strange := [name for name, value in fits.items() if not math.isfinite(value)]:
        raise UserError(f"not a finite number: {strange[0]}", where=path, fix="Align again")
    return fits
