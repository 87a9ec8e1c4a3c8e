"""Alignments of one tree as those of another (Kaldi's convert-ali)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from hadpsgd.errors import UserError
from hadpsgd.gmm.collect import utterances_of
from hadpsgd.gmm.context_stats import Context, windows
from hadpsgd.gmm.em import Passes
from hadpsgd.gmm.event_map import Tree
from hadpsgd.gmm.phone_segments import segments
from hadpsgd.gmm.transition_model import TransitionModel
from hadpsgd.gmm.workspace import Chunk, Workspace


def convert(passes: Passes, old: TransitionModel, new: TransitionModel, tree: Tree) -> None:
    """Replace the stored transition-ids by those of `new`, made from `tree`.

    Raises:
        UserError: the models have other phones or topologies.
    """
    make = partial(_converter, passes.space, old, new, tree)
    for _ in passes.each(make, "conversion of alignments"):
        pass


def _converter(
    space: Workspace, old: TransitionModel, new: TransitionModel, tree: Tree
) -> Callable[[Chunk], None]:
    numbers = {
        tuple(row): int(first)
        for row, first in zip(new.tuples.tolist(), new.first_id, strict=False)
    }
    offset_of_id = np.arange(old.num_ids + 1) - old.first_id[old.state_of_id]
    context = Context(width=tree.width, position=tree.position)
    known: dict[tuple[int, ...], int] = {}

    def first_id(event: tuple[int, ...]) -> int:
        if event not in known:
            *window, state = event
            phone = window[tree.position]
            pdf = tree.pdf(tuple(window), new.topology.states(phone)[state].forward_pdf_class)
            key = (phone, state, pdf, pdf)
            if pdf is None or key not in numbers:
                raise UserError(
                    f"the tree has no state {state} of phones {window}",
                    fix="Use the lang folder of the alignments",
                )
            known[event] = numbers[key]
        return known[event]

    def convert_chunk(chunk: Chunk) -> None:
        converted = np.zeros_like(space.alignment(chunk))
        for place, ids in utterances_of(space, chunk):
            parts = segments(old, ids)
            around = windows(parts.phones, context)[parts.by_frame()]
            events = np.column_stack([around, old.hmm_state[ids]])
            changes = np.flatnonzero(np.any(events[1:] != events[:-1], axis=1)) + 1
            starts = np.concatenate([[0], changes])
            firsts = [first_id(tuple(event)) for event in events[starts].tolist()]
            lengths = np.diff(np.append(starts, len(ids)))
            converted[place] = np.repeat(firsts, lengths) + offset_of_id[ids]
        space.store_alignment(chunk, converted)

    return convert_chunk
