"""What a run minimises, and the weights that it begins with."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from hadpsgd.config import RunSettings
from hadpsgd.config.stage import StageRun
from hadpsgd.egs.dataset import Dataset
from hadpsgd.errors import UserError
from hadpsgd.graph.denominator import FILE, Denominator
from hadpsgd.models.blstm import BLSTM
from hadpsgd.models.build import load_model, log_priors
from hadpsgd.models.lfmmi import SequenceLoss
from hadpsgd.models.loss import FrameScore


class CrossEntropy(nn.Module):
    """The loss as a module's output: what an engine may wrap."""

    def __init__(self, model: BLSTM) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy of a batch."""
        return self.model.loss(x, targets)

    def score(self, x: Tensor, targets: Tensor) -> FrameScore:
        """Held-out loss and frame accuracy of a batch, as sums."""
        return self.model.score(x, targets)


Criterion = CrossEntropy | SequenceLoss


def criterion_of(model: BLSTM, settings: RunSettings, examples: Dataset) -> Criterion:
    """Of a run; the model is on its device already.

    Raises:
        UserError: a stage of sequence training has no denominator, or one of another alignment.
    """
    if not isinstance(run := settings.run, StageRun):
        return CrossEntropy(model)
    denominator = Denominator.read(examples.folder / FILE)
    if int(denominator.pdf.max()) >= examples.num_pdfs:
        raise UserError(
            f"pdf-id {denominator.pdf.max()}, and the examples have {examples.num_pdfs}",
            where=examples.folder / FILE,
            fix="`hadpsgd egs --stage` makes both",
        )
    return SequenceLoss(model, denominator, log_priors(examples.pdf_counts), run.stage)


@torch.no_grad()
def begin(model: BLSTM, initial: Path | None, examples: Dataset) -> None:
    """Give the model the weights of `initial`, where a run goes on from those of another.

    Raises:
        UserError: no such model, or not one of the same size, input and pdf-ids.
    """
    if initial is None:
        return
    found, meta = load_model(initial)
    there = (meta.input_dim, list(meta.streams), meta.num_pdfs)
    here = (examples.dim, list(examples.streams), examples.num_pdfs)
    shapes = [{n: p.shape for n, p in m.named_parameters()} for m in (found, model)]
    if there != here or shapes[0] != shapes[1]:
        raise UserError(
            f"a model for inputs {there[1]} ({there[0]}) and {there[2]} pdf-ids, or of other "
            f"layers, where inputs {here[1]} ({here[0]}) and {here[2]} pdf-ids are trained",
            where=initial,
            fix="Give final.pt of the run before, of the same config",
        )
    for name, parameter in model.named_parameters():
        parameter.copy_(found.get_parameter(name))
