"""How words were pronounced in an alignment, where silence stood beside them; estimates of both.

Chen, Xu, Wu, Povey, Khudanpur: Pronunciation and silence probability modeling for ASR, Interspeech
2015; Kaldi's steps/get_prons.sh counts and utils/dict_dir_add_pronprobs.sh estimates. In one thing
the script leaves the paper: its P(silence | <s>) is 0 where it computes how much silence is to be
expected before words, so that its factors of words that begin utterances are far from 1.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from hadpsgd.corpus.lang.dictionary import Pronunciation
from hadpsgd.corpus.lang.silences import Beside, Ends

Spoken = tuple[str, tuple[str, ...]]
"""A word and the phones that it was said with."""
BEGIN: Spoken = ("<s>", ())
END: Spoken = ("</s>", ())
_SMOOTHING = 2.0
"""Places that the prior weighs: lambda_2 and lambda_3 of the paper."""
_LEAST, _MOST = 0.01, 0.99


def utterance_of(
    phones: Sequence[str], words: Sequence[str], cuts: Sequence[tuple[int, int]]
) -> Iterator[tuple[Spoken, bool]]:
    """Begin, words and end of an utterance, each with whether phones (silence) stood before it.

    Args:
        phones: all of them.
        words: as many as cuts.
        cuts: first and last phone (exclusive) of each word.
    """
    yield BEGIN, False
    passed = 0
    for word, (first, last) in zip(words, cuts, strict=True):
        yield (word, tuple(phones[first:last])), first > passed
        passed = last
    yield END, len(phones) > passed


@dataclass
class Counts:
    """How often a word stood after another one, with silence between them or without.

    pairs: by what was said before, what was said then, and whether silence was between.
    """

    pairs: Counter[tuple[Spoken, Spoken, bool]] = field(default_factory=Counter)

    def add(self, utterance: Iterable[tuple[Spoken, bool]]) -> None:
        """Count an utterance."""
        for (before, _), (spoken, silent) in pairwise(utterance):
            self.pairs[before, spoken, silent] += 1

    def before(self, silent: bool) -> Counter[Spoken]:
        """How often silence, or none, stood before each."""
        return self._summed(1, silent)

    def after(self, silent: bool) -> Counter[Spoken]:
        """How often silence, or none, stood after each."""
        return self._summed(0, silent)

    def _summed(self, side: Literal[0, 1], silent: bool) -> Counter[Spoken]:
        found: Counter[Spoken] = Counter()
        for pair, count in self.pairs.items():
            if pair[2] == silent:
                found[pair[side]] += count
        return found


def estimate(counts: Counts, lexicon: Sequence[Spoken]) -> tuple[list[Pronunciation], Ends]:
    """Probabilities of all pronunciations of a lexicon, rounded as Kaldi's.

    With C of counts, v * w of v before w, s of silence and n of none, by the paper:

        P(w said as p) = (C(w.p) + 1) / max over p of (C(w.p) + 1)
        P(s after w)   = (C(w s) + 2 P(s)) / (C(w) + 2)
        F(s before w)  = (C(s w) + 2) / (sum over v of C(v * w) P(s after v) + 2), and n alike

    where w is a word with its pronunciation. Kaldi keeps two digits after the point (of the factors
    of ends all), and at least 0.01.

    Returns: the lexicon's entries in their order, and the ends of utterances.
    """
    said = (counts.before(True), counts.before(False))
    followed = (counts.after(True), counts.after(False))
    overall = round(said[0].total() / max(said[0].total() + said[1].total(), 1), 2)

    def after(spoken: Spoken) -> float:
        silent = followed[0][spoken] + _SMOOTHING * overall
        return _within(silent / (followed[0][spoken] + followed[1][spoken] + _SMOOTHING))

    expected: dict[Spoken, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for (v, w, _), count in sorted(counts.pairs.items()):  # floats, in one order
        silence = after(v)
        expected[w][0] += count * silence
        expected[w][1] += count * (1 - silence)

    def factors(spoken: Spoken, digits: int) -> tuple[float, float]:
        with_silence, without = (
            max(_LEAST, round((often[spoken] + _SMOOTHING) / (expectation + _SMOOTHING), digits))
            for often, expectation in zip(said, expected[spoken], strict=True)
        )
        return with_silence, without

    spoken_times = said[0] + said[1]
    highest: dict[str, int] = {}
    for spoken in lexicon:
        highest[spoken[0]] = max(highest.get(spoken[0], 0), spoken_times[spoken] + 1)
    entries = [
        Pronunciation(
            spoken[0],
            (spoken_times[spoken] + 1) / highest[spoken[0]],
            spoken[1],
            Beside(after(spoken), *factors(spoken, 2)),
        )
        for spoken in lexicon
    ]
    overall = min(max(overall, _LEAST), _MOST)
    return entries, Ends(after(BEGIN), *factors(END, 6), overall)


def _within(probability: float) -> float:
    return min(max(round(probability, 2), _LEAST), _MOST)
