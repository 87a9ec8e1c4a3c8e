"""How a model's folder says its features are made: deltas, or splicing and final.mat."""

from __future__ import annotations

from pathlib import Path

from hadpsgd.errors import UserError
from hadpsgd.features.splice import read_splice_opts
from hadpsgd.gmm.model import Model
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


def pipeline_of(front: Front, dim: int, folder: Path) -> Pipeline:
    """The pipeline of stored features of `dim` dimensions; `folder` is where `front` is from.

    Raises:
        UserError: its matrix is for features of other dimensions.
    """
    if front.matrix is None:
        return deltas(dim=dim)
    width, columns = (2 * front.context + 1) * dim, front.matrix.shape[1]
    if columns not in (width, width + 1):
        raise UserError(
            f"{width} spliced features, and a matrix of {columns} columns",
            where=folder / "final.mat",
            fix="Give the features that the model was trained on (features.mfcc, or .imports.mfcc)",
        )
    return Pipeline(front.context, front.matrix)


def check_dim(pipeline: Pipeline, model: Model, path: Path) -> None:
    """Refuse a model of other features than a pipeline's.

    Raises:
        UserError: their dimensions differ.
    """
    assert pipeline.matrix is not None
    if len(pipeline.matrix) != model.mixtures.dim:
        raise UserError(
            f"a model of {model.mixtures.dim} dimensions, and features of {len(pipeline.matrix)}",
            where=path,
            fix="Take final.mdl and final.mat from one folder, and its features",
        )
