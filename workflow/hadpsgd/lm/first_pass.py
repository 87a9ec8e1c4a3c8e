"""A first pass given as an ARPA file, beside the full model that rescores its lattices.

Kaldi's egs/swbd/s5c decodes so: with a trigram of Switchboard, lattices rescored with a 4-gram of
Switchboard and Fisher (steps/lmrescore_const_arpa.sh).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from hadpsgd.errors import UserError
from hadpsgd.lm import arpa
from hadpsgd.lm.arpa import BOS, EOS, Ngram
from hadpsgd.lm.train import write

_NAMED = 5


def take(*, path: Path, full: Path, known: frozenset[str], out: Path) -> dict[str, int]:
    """Write the n-grams of a first pass whose words the full model has too.

    A word that the full model lacks could not be rescored; both that and the opposite are said.
    `known`: words with a pronunciation, all others are in no graph.

    Returns how many words only one of them has.

    Raises:
        UserError: no sound language model, or no word in common.
    """
    arpa.check(path)
    first, second = unigrams(path), unigrams(full)
    lost, unheard = first - second, second - first
    if not (first & second & known) - {BOS, EOS}:
        raise UserError(
            f"no word that {full} and the lexicon have too", where=path, fix="Is it another case?"
        )
    counts = Counter(len(ngram.words) for ngram in _without(path, lost))
    write(out, [counts[order] for order in sorted(counts)], _without(path, lost))
    _say(path, "are not in the full model and left out of the graph", lost & known)
    _say(path, "of the full model are not in it and cannot be recognised", unheard & known)
    return {"only_first_pass": len(lost & known), "only_full": len(unheard & known)}


def unigrams(path: Path) -> frozenset[str]:
    """Words of a model."""
    ones = takewhile(lambda ngram: len(ngram.words) == 1, arpa.read(path))
    return frozenset(ngram.words[0] for ngram in ones)


def _without(path: Path, words: frozenset[str]) -> Iterator[Ngram]:
    return (ngram for ngram in arpa.read(path) if words.isdisjoint(ngram.words))


def _say(path: Path, what: str, words: frozenset[str]) -> None:
    if words:
        named = ", ".join(sorted(words)[:_NAMED])
        print(f"warning: {path}: {len(words)} words {what}: {named}", file=sys.stderr)
