"""Monophones from a flat start (Kaldi's steps/train_mono.sh)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hadpsgd.config.alignment import MonoStage
from hadpsgd.corpus.lang import topology
from hadpsgd.gmm import transition_model
from hadpsgd.gmm.checkpoint import Checkpoint
from hadpsgd.gmm.compilation import compile_graphs
from hadpsgd.gmm.data import Lang
from hadpsgd.gmm.em import Passes, Search
from hadpsgd.gmm.event_map import Tree
from hadpsgd.gmm.flat_start import align_equally, global_mixtures, monophone_tree
from hadpsgd.gmm.model import Model
from hadpsgd.gmm.training import Schedule, State, maximise, train
from hadpsgd.gmm.update import Growth

# before these iterations utterances are aligned anew (train_mono.sh)
REALIGN = frozenset((*range(1, 11), 12, 14, 16, 18, 20, 23, 26, 29, 32, 35, 38))
FIRST_BEAM = 6.0
FIRST_OCCUPANCY = 3.0
POWER = 0.25


@dataclass(frozen=True)
class Trained:
    """A model and its tree, and the frames it was trained on."""

    tree: Tree
    state: State


def train_mono(
    passes: Passes, words: list[list[int]], lang: Lang, options: MonoStage, search: Search,
    checkpoint: Checkpoint, seed: int,
) -> Trained:  # fmt: skip
    """Train on the utterances of the workspace.

    Raises:
        UserError: lang folder and transcripts do not fit, or nothing aligns.
    """
    topo = topology.read_text(lang.folder / "topo")
    tree = monophone_tree(lang.rows(name="phones/sets.int"), topo)
    transitions = transition_model.make(tree, topo)
    compile_graphs(passes, words, lang, tree, transitions)
    align_equally(passes, seed)
    model = Model(transitions, global_mixtures(passes, tree.num_pdfs))
    first = Growth(gaussians=0, power=POWER, min_occupancy=FIRST_OCCUPANCY)
    sums = passes.accumulate(model)
    model = maximise(model, sums, first, np.random.default_rng(seed))
    schedule = Schedule(
        name="mono",
        iterations=options.iterations,
        realign=REALIGN,
        grow_until=max(1, options.iterations * 3 // 4),
        start=len(model.mixtures.weights),
        gaussians=options.gaussians,
        power=POWER,
        seed=seed,
        prior=options.variance_prior,
        first_beam=FIRST_BEAM,
    )
    return Trained(tree, train(schedule, State(passes, model), search, checkpoint))
