"""Speaker-adaptive training with FMLLR (Kaldi's train_sat.sh and align_fmllr.sh)."""

from __future__ import annotations

import sys
from dataclasses import replace

from hadpsgd.gmm.adaptation import Adaptation
from hadpsgd.gmm.collect import adapt
from hadpsgd.gmm.diag_gmm import Mixtures
from hadpsgd.gmm.em import Outcome, Passes
from hadpsgd.gmm.model import Model
from hadpsgd.gmm.mono import Trained
from hadpsgd.gmm.session import Session
from hadpsgd.gmm.training import State
from hadpsgd.gmm.tree_stage import Setting, train_stage
from hadpsgd.gmm.update import estimate

ADAPT = frozenset((2, 4, 6, 12))


def adapted(
    work: Session, passes: Passes, model: Model, aligner: Mixtures | None = None
) -> tuple[Passes, Adaptation]:
    """Passes with transforms that are estimated anew, on top of those before."""
    least = work.ladder.min_speaker_frames
    found = adapt(passes, model, work.lang.silence, least, aligner)
    print(found.summary, file=sys.stderr)
    pipeline = replace(passes.pipeline, transforms=found.transforms)
    return replace(passes, pipeline=pipeline), found


def train_sat(work: Session, setting: Setting, passes: Passes, previous: Model) -> Trained:
    """Train on features that are adapted ever anew; starts from alignments of `previous`.

    Raises:
        UserError: lang folder and alignments do not fit, or nothing aligns.
    """

    def hook(iteration: int, state: State) -> State:
        if iteration not in ADAPT:
            return state
        return State(adapted(work, state.passes, state.model)[0], state.model)

    first, _ = adapted(work, passes, previous)
    return train_stage(setting, first, previous.transitions, hook)


def alignment_model(passes: Passes, model: Model, prior: float) -> Model:
    """A model of the unadapted features with the same Gaussians (Kaldi's final.alimdl)."""
    sums = passes.accumulate(model, unadapted(passes).pipeline)
    return Model(model.transitions, estimate(model.mixtures, sums, remove=False, prior=prior))


def unadapted(passes: Passes) -> Passes:
    """Without the speakers' transforms."""
    return replace(passes, pipeline=replace(passes.pipeline, transforms={}))


def adapt_and_align(
    work: Session, passes: Passes, model: Model, aligner: Model
) -> tuple[Adaptation, Outcome]:
    """Align unadapted features, estimate transforms, align adapted features.

    Raises:
        UserError: too many utterances fail.
    """
    plain = unadapted(passes)
    work.aligned(plain, aligner, last=False)
    ready, found = adapted(work, plain, model, aligner.mixtures)
    return found, work.aligned(ready, model)
