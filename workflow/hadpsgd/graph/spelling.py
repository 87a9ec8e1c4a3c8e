"""One model of how new words are spelled, put into a grammar of known words."""

from __future__ import annotations

import numpy as np

from hadpsgd.errors import UserError
from hadpsgd.graph.arrays import ARC, Arrays, assemble


def with_spelling(
    grammar: Arrays,
    spelling: Arrays,
    labels: tuple[int, int, int],
    *,
    cost: float = 0.0,
    scale: float = 1.0,
) -> Arrays:
    """The grammar with its arcs of new words leading through `spelling`, which is there once.

    After a spelled word the history is that such a word was there, and no more.

    Args:
        grammar: G, with the begin standing for every new word.
        spelling: G over pieces.
        labels: of the begin of a spelled word, of its end, and of #0.
        cost: added to every spelled word.
        scale: of the costs inside a spelled word.

    Raises:
        UserError: the grammar expects no new words.
    """
    begin, end, backoff = labels
    size = len(grammar.final)
    after = _target(grammar, _without_history(grammar, backoff), begin)
    arcs = grammar.arcs.copy()
    begins = arcs["ilabel"] == begin
    arcs["next"][begins] = size + spelling.start
    arcs["weight"][begins] += np.float32(cost)
    inside = spelling.arcs.copy()
    inside["next"] += size
    inside["weight"] *= np.float32(scale)
    ending = np.flatnonzero(np.isfinite(spelling.final))
    ends = np.zeros(len(ending), ARC)
    ends["ilabel"] = ends["olabel"] = end
    ends["weight"] = scale * spelling.final[ending]
    ends["next"] = after
    return assemble(
        grammar.start,
        np.concatenate([grammar.final, np.full_like(spelling.final, np.inf)]),
        np.concatenate([grammar.sources, size + spelling.sources, size + ending]),
        np.concatenate([arcs, inside, ends]),
    )


def _without_history(grammar: Arrays, backoff: int) -> int:
    """The state of words without history: where backing off ends."""
    state: int | None = grammar.start
    while state is not None:
        last, state = state, _follow(grammar, state, backoff)
    return last


def _target(grammar: Arrays, state: int, label: int) -> int:
    target = _follow(grammar, state, label)
    if target is None:
        raise UserError(
            "--spelling: the language model expects no new words",
            fix="Train it on the text that `hadpsgd pieces` writes",
        )
    return target


def _follow(grammar: Arrays, state: int, label: int) -> int | None:
    arcs = grammar.arcs[grammar.first[state] : grammar.first[state + 1]]
    found = arcs["next"][arcs["ilabel"] == label]
    return int(found[0]) if len(found) else None
