"""Kneser-Ney n-grams of a text, on arrays: of order 4 in some 125 bytes a word of the text.

Orders below the highest count the words that stand before an n-gram, but raw after <s>. With one
discount an order as Kaldi's make_kn_lm.py (kaldingram): n1 / (n1 + 2 n2) of its raw counts, and
what is discounted is for words that do not follow. Two things that it leaves as they come on small
texts are done otherwise:

- Where no n-gram of an order occurs exactly twice, the discount would be 1: all that was seen once
  would have no probability left. KenLM's fallback is taken, 0.5.
- Where every word was seen after a history, nothing is left to back off to, and what the discount
  took would be lost: the probabilities there are scaled to add up to 1, as SRILM does.

With three discounts an order, for what was counted once, twice and more often (modified Kneser-Ney:
Chen and Goodman 1998, equation 26; KenLM's lmplz, SRILM's -kndiscount -interpolate), what is
discounted is for all words, as the order below has them; single words with all words alike. Where
counts give no discounts between 0 and themselves, KenLM's fallback is taken: 0.5, 1, 1.5.

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
from hadpsgd.lm.whole import Values, add_order
from hadpsgd.progress import Progress

ONE, THREE = 1, 3
"""Discounts an order."""
_FALLBACK = 0.5
_FALLBACKS = (0.0, 0.5, 1.0, 1.5)
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


def estimate(
    text: Text, order: int, cutoffs: Sequence[int] = (0,), discounts: int = ONE
) -> Backoff:
    """The model of a text; of a lower order where cut-offs leave none of the longest.

    Args:
        text: at least one sentence.
        order: of the n-grams, at least 2, at most `text.longest`.
        cutoffs: n-grams that occur so often or less often are left out, by length, the last number
            for longer ones too; 0 first, none below the one before.
        discounts: ONE or THREE an order.
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
        if discounts == THREE:
            discount = _three_discounts(used)[np.minimum(used, THREE)]
        else:
            discount = np.asarray(_discount(these.seen) if length > 1 else 0.0)
        values = np.maximum(used - discount, 0.0) / _sums(contexts, used)
        keys, left = these.keys, kept[length - 1]
        if not left.all():  # words are all kept
            contexts, values = contexts[left], values[left]
            rows = np.cumsum(kept[length - 2]) - 1  # of the contexts among those that are kept
            keys = rows[contexts] * size + keys[left] % size
        if not len(keys):
            break
        if length == 1:
            said = int(np.count_nonzero(used))
        if discounts == THREE:
            rest = 1.0 - _sums(contexts, values)
            below = partial(_below, model) if length > 1 else partial(_some, (used > 0) / said)
            add_order(model, keys, partial(_interpolated, values, rest, below), progress)
            continue
        if length > 1:
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


def _below(model: Backoff, _: slice, grams: Ids) -> NDArray[np.float64]:
    """Probabilities of the order below."""
    found: NDArray[np.float64] = 10.0 ** model.log10(grams[:, 1:-1], grams[:, -1])
    return found


def _interpolated(
    values: NDArray[np.float64], rest: NDArray[np.float64], below: Values, rows: slice, grams: Ids
) -> NDArray[np.float64]:
    """Values, and the rest of their contexts shared out as the order below has it."""
    return values[rows] + rest[rows] * below(rows, grams)


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


def _three_discounts(used: NDArray[np.int32]) -> NDArray[np.float64]:
    """float64 [4]: of what was counted not at all (nothing), once, twice, more often."""
    n = np.bincount(np.minimum(used, THREE + 2), minlength=THREE + 3).astype(np.float64)
    if not n[1 : THREE + 1].all():
        return np.array(_FALLBACKS)
    times = np.arange(1, THREE + 1)
    found = times - (times + 1) * n[1] / (n[1] + 2 * n[2]) * n[2 : THREE + 2] / n[1 : THREE + 1]
    within = ((found >= 0) & (found <= times)).all()
    return np.append(0.0, found) if within else np.array(_FALLBACKS)
