"""A tied-triphone stage: tree, first model, converted alignments, training.

What Kaldi's train_deltas.sh, train_lda_mllt.sh and train_sat.sh share.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

from hadpsgd.config.alignment import TreeStage
from hadpsgd.gmm import phone_questions, transition_model
from hadpsgd.gmm.build_tree import Growth, build_tree, initial_mixtures
from hadpsgd.gmm.checkpoint import Checkpoint
from hadpsgd.gmm.collect import tree_statistics
from hadpsgd.gmm.compilation import compile_graphs
from hadpsgd.gmm.context_stats import Context
from hadpsgd.gmm.conversion import convert
from hadpsgd.gmm.data import Lang
from hadpsgd.gmm.em import Passes, Search
from hadpsgd.gmm.model import Model
from hadpsgd.gmm.mono import Trained
from hadpsgd.gmm.training import Hook, Schedule, State, train
from hadpsgd.gmm.transition_model import TransitionModel
from hadpsgd.gmm.tree_roots import read_roots
from hadpsgd.gmm.update import split, split_targets

REALIGN = frozenset((10, 20, 30))
POWER = 0.25
MIXUP_POWER = 0.2
"""gmm-mixup's default, with which train_deltas.sh calls it."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a stage is trained with.

    mixed_first: whether the first model has as many Gaussians as `options.leaves` (train_deltas.sh)
    or one a pdf (train_lda_mllt.sh, train_sat.sh).
    """

    name: str
    options: TreeStage
    lang: Lang
    words: list[list[int]]
    search: Search
    seed: int
    checkpoint: Checkpoint
    power: float = POWER
    mixed_first: bool = False


def train_stage(
    setting: Setting, passes: Passes, previous: TransitionModel, hook: Hook = lambda _, state: state
) -> Trained:
    """Train triphones on the alignments that the workspace holds, which are of `previous`.

    Raises:
        UserError: lang folder and alignments do not fit, or nothing aligns.
    """
    lang, options = setting.lang, setting.options
    context = Context(independent=tuple(lang.numbers(name="phones/context_indep.int")))
    stats = tree_statistics(passes, previous, context)
    sets = phone_questions.automatic(stats, lang.rows(name="phones/sets.int"), setting.seed)
    sets += [tuple(row) for row in lang.rows(name="phones/extra_questions.int")]
    asked = phone_questions.compiled(sets, previous.topology, context.width)
    roots = read_roots(lang.folder / "phones/roots.int")
    built = build_tree(stats, roots, asked, previous.topology, Growth(max_leaves=options.leaves))
    print(f"{setting.name}: {built.summary}", file=sys.stderr)
    first = initial_mixtures(built.tree, stats)
    if first.unseen:
        print(
            f"{setting.name}: {len(first.unseen)} pdfs were never seen: they start as all frames",
            file=sys.stderr,
        )
    mixtures = first.mixtures
    if setting.mixed_first:
        mixed = split_targets(first.occupancy, gaussians=options.leaves, power=MIXUP_POWER)
        mixtures = split(mixtures, mixed, np.random.default_rng(setting.seed))
    transitions = transition_model.make(built.tree, previous.topology)
    convert(passes, previous, transitions, built.tree)
    compile_graphs(passes, setting.words, lang, built.tree, transitions)
    schedule = Schedule(
        name=setting.name,
        iterations=options.iterations,
        realign=REALIGN,
        grow_until=max(1, options.iterations * 5 // 7),
        start=options.leaves,
        gaussians=options.gaussians,
        power=setting.power,
        seed=setting.seed,
        prior=options.variance_prior,
    )
    state = State(passes, Model(transitions, mixtures))
    return Trained(built.tree, train(schedule, state, setting.search, setting.checkpoint, hook))
