"""Kneser-Ney counts (kaldingram), discounted so that texts of any size give a model.

Two things that kaldingram leaves as they come on small texts:

- Where no n-gram of an order occurs exactly twice, the estimated discount n1 / (n1 + 2 n2) is 1:
  all that was seen once would have no probability left. KenLM's fallback is taken, 0.5.
- Where every word was seen after a history, nothing is left to back off to, and what the discount
  took would be lost: the probabilities there are scaled to add up to 1, as SRILM does.
"""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

from kaldingram.train import NgramCounts

_FALLBACK = 0.5


def estimate(text: Path, order: int, out: Path) -> None:
    """Write the plain ARPA file of a text, in bytes as Latin-1 reads them.

    Args:
        text: one sentence a line, at least one of `order` words, <s> and </s> counted.
        order: of the n-grams.
        out: the ARPA file.
    """
    counts = NgramCounts(order)
    with redirect_stderr(io.StringIO()):  # its progress bars
        counts.add_raw_counts_from_file(str(text))
        counts.cal_discounting_constants()
        counts.d = [_FALLBACK if discount >= 1.0 else discount for discount in counts.d]
        counts.cal_f()
        full = _use_up(counts.counts)
        counts.cal_bow()
        for *context, word in full:  # by rounding it may be anything
            counts.counts[len(context)][tuple(context)].word_to_bow[word] = None
        with out.open("w", encoding="latin-1") as stream:  # it takes bytes for letters
            counts.print_as_arpa(fout=stream)


def _use_up(orders: list[dict[tuple[str, ...], Any]]) -> list[tuple[str, ...]]:
    """Scale the probabilities after histories that every word follows; returns these."""
    (unigrams,) = orders[0].values()
    words = sum(probability > 0.0 for probability in unigrams.word_to_f.values())
    full: list[tuple[str, ...]] = []
    shorter: set[tuple[str, ...]] = {()}
    for histories in orders[1:]:
        # after a history are no other words than after the same without its first word
        shorter = {
            history
            for history, seen in histories.items()
            if len(seen.word_to_f) == words and history[1:] in shorter
        }
        for history in shorter:
            given = histories[history].word_to_f
            total = sum(given.values())
            for word in given:
                given[word] /= total
        full += shorter
    return full
