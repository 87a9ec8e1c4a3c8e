"""Kneser-Ney n-grams of a text, on arrays: of order 4 in some 125 bytes a word of the text.

As Kaldi's make_kn_lm.py (kaldingram): one discount an order, n1 / (n1 + 2 n2) of its raw counts;
orders below the highest count the words that stand before an n-gram, but raw after <s>. Two things
that it leaves as they come on small texts are done otherwise:

- Where no n-gram of an order occurs exactly twice, the discount would be 1: all that was seen once
  would have no probability left. KenLM's fallback is taken, 0.5.
- Where every word was seen after a history, nothing is left to back off to, and what the discount
  took would be lost: the probabilities there are scaled to add up to 1, as SRILM does.

Cut-offs leave out n-grams by their raw counts, after all counts and discounts are known, as KenLM's
`lmplz --prune` does; what they had is left to back off to.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hadpsgd.lm.arpa import BOS, EOS
from hadpsgd.lm.backoff import NONE, Backoff, Ids
from hadpsgd.lm.whole import add_order
from hadpsgd.progress import Progress

_FALLBACK = 0.5
_BOS = 0  # its id


@dataclass(frozen=True)
class Text:
    """Sentences as numbers.

    Args:
        words: the vocabulary; a word's id is its place, <s> has the first.
        tokens: int32 [words of all sentences, each in <s> and </s>], ids.
        longest: most words of a sentence, <s> and </s> counted.
    """

    words: Sequence[str]
    tokens: NDArray[np.int32]
    longest: int

    @classmethod
    def of(cls, sentences: Iterable[Sequence[str]]) -> Text:
        """Of sentences without <s> and </s>; words are numbered as they come."""
        ids: defaultdict[str, int] = defaultdict()
        ids.default_factory = ids.__len__
        begin, end = ids[BOS], ids[EOS]
        tokens, longest = array("i"), 0
        for words in sentences:
            tokens.append(begin)
            tokens.extend(map(ids.__getitem__, words))
            tokens.append(end)
            longest = max(longest, len(words) + 2)
        return cls(list(ids), np.frombuffer(tokens, np.int32), longest)


@dataclass(frozen=True)
class Counts:
    """All n-grams of one length.

    Args:
        keys: int64 [n-grams], ascending: row of the context * vocabulary + last word.
        seen: int32 [n-grams]: how often in the text.
        rest: int32 [n-grams]: row of the n-gram without its first word; of single words 0.
    """

    keys: Ids
    seen: NDArray[np.int32]
    rest: NDArray[np.int32]


def count(text: Text, order: int) -> list[Counts]:
    """By length, up to an order that the longest sentence has."""
    size, tokens = len(text.words), text.tokens
    progress = Progress("n-grams counted", order * len(tokens), "words")
    seen = np.bincount(tokens, minlength=size).astype(np.int32)
    orders = [Counts(np.arange(size), seen, np.zeros(size, np.int32))]
    rows = tokens  # of the n-gram that ends at a word, NONE where the sentence begins too late
    progress.add(len(tokens))
    for _ in range(2, order + 1):
        at = np.flatnonzero((rows[:-1] >= 0) & (tokens[1:] != _BOS)) + 1
        keys, place, times = np.unique(
            rows[at - 1].astype(np.int64) * size + tokens[at],
            return_inverse=True,
            return_counts=True,
        )
        rest = np.empty(len(keys), np.int32)
        rest[place] = rows[at]
        orders.append(Counts(keys, times.astype(np.int32), rest))
        rows = np.full(len(tokens), NONE, np.int32)
        rows[at] = place
        progress.add(len(tokens))
    return orders


def estimate(text: Text, order: int, cutoffs: Sequence[int] = (0,)) -> Backoff:
    """The model of a text; of a lower order where cut-offs leave none of the longest.

    Args:
        text: at least one sentence.
        order: of the n-grams, at least 2, at most `text.longest`.
        cutoffs: n-grams that occur so often or less often are left out, by length, the last number
            for longer ones too; 0 first, none below the one before.
    """
    orders = count(text, order)
    size = len(text.words)
    kept = [these.seen > cut for these, cut in zip(orders, each_order(cutoffs, order), strict=True)]
    total = sum(int(np.count_nonzero(of_length)) for of_length in kept)
    progress = Progress("language model estimated", total, "n-grams")
    model = Backoff(text.words)
    said = 0
    full = np.ones(1, bool)  # contexts that every word follows, by row; the empty one to begin with
    for length, these in enumerate(orders, 1):
        contexts = these.keys // size if length > 1 else np.zeros(size, np.int64)
        used = these.seen
        if length < order:
            before = np.bincount(orders[length].rest, minlength=len(used)).astype(np.int32)
            used = np.where(_sums(contexts, before) > 0, before, used)
        discount = _discount(these.seen) if length > 1 else 0.0
        values = np.maximum(used - discount, 0.0) / _sums(contexts, used)
        keys, left = these.keys, kept[length - 1]
        if not left.all():  # words are all kept
            contexts, values = contexts[left], values[left]
            rows = np.cumsum(kept[length - 2]) - 1  # of the contexts among those that are kept
            keys = rows[contexts] * size + keys[left] % size
        if not len(keys):
            break
        if length == 1:
            said = int(np.count_nonzero(values))
        else:
            above = orders[length - 2]
            # after a history are no other words than after the same without its first word
            full = full[above.rest] & (np.bincount(contexts, minlength=len(above.keys)) == said)
            given = full[contexts]
            values[given] /= _sums(contexts, values)[given]
        add_order(model, keys, partial(_some, values), progress)
    return model


def each_order(cutoffs: Sequence[int], order: int) -> list[int]:
    """A cut-off for every order: the last one holds for higher orders, too."""
    return [cutoffs[min(length, len(cutoffs)) - 1] for length in range(1, order + 1)]


def _some(values: NDArray[np.float64], rows: slice, _: Ids) -> NDArray[np.float64]:
    return values[rows]


def _sums(contexts: Ids, values: NDArray[np.generic]) -> NDArray[np.float64]:
    """float64 [n-grams]: of all values of the same context."""
    sums = np.bincount(contexts, values.astype(np.float64)).astype(np.float64, copy=False)
    return sums[contexts]


def _discount(seen: NDArray[np.int32]) -> float:
    once, twice = (int(np.count_nonzero(seen == times)) for times in (1, 2))
    if not once + twice:
        return 0.1
    discount = max(0.1, once) / (once + 2 * twice)
    return _FALLBACK if discount >= 1.0 else discount
