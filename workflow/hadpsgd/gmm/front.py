"""How a model's folder says its features are made: deltas, or splicing and final.mat."""

from __future__ import annotations

from pathlib import Path

from hadpsgd.errors import UserError
from hadpsgd.features.splice import read_splice_opts
from hadpsgd.gmm.pipeline import Pipeline, deltas
from hadpsgd.gmm.results import Front
from hadpsgd.kaldi_binary import read_matrix


def read_front(folder: Path) -> Front:
    """Read final.mat and splice_opts; deltas where there is no final.mat.

    Raises:
        UserError: a file is broken, or the context is not as wide on both sides.
    """
    if not (folder / "final.mat").is_file():
        return Front()
    left, right = read_splice_opts(folder / "splice_opts")
    if left != right:
        raise UserError("contexts differ in width", where=folder / "splice_opts")
    return Front(left, read_matrix(folder / "final.mat").astype("float32"))


def pipeline_of(front: Front, dim: int) -> Pipeline:
    """The pipeline of stored features of `dim` dimensions."""
    return deltas(dim=dim) if front.matrix is None else Pipeline(front.context, front.matrix)
