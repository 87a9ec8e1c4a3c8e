"""What an utterance says, as labels of a graph: its words, and all ways to spell them in pieces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from hadpsgd.corpus.lang.joined import letters
from hadpsgd.corpus.lang.lexicon_fst import WORD_END, WORD_START


@dataclass(frozen=True)
class Said:
    """Labels between places: every way from place 0 to place `end` says the same.

    arcs: (place, a later place, label).
    """

    end: int
    arcs: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Vocabulary:
    """Labels of words by name; with `pieces` words may also be spelled."""

    numbers: Mapping[str, int]
    pieces: bool

    def unknown(self, words: Sequence[str]) -> tuple[str, ...]:
        """The words that it cannot say, each once."""
        return tuple(word for word in dict.fromkeys(words) if not self._ways(word))

    def said(self, words: Sequence[str]) -> Said:
        """Words that it can all say."""
        arcs: list[tuple[int, int, int]] = []
        end = 0
        for word in words:
            ways = self._ways(word)
            arcs += [(end + a, end + b, label) for a, b, label in ways]
            end += max(b for _, b, _ in ways)
        return Said(end, tuple(arcs))

    @cached_property
    def _spelled(self) -> dict[str, list[int]]:
        """Labels by what they add to the spelling of a word, whatever they sound like."""
        found: dict[str, list[int]] = defaultdict(list)
        for name, number in self.numbers.items():
            found[letters(name)].append(number)
        return dict(found)

    def _ways(self, word: str) -> list[tuple[int, int, int]]:
        """Arcs from the start of a word to its end; none where it cannot be said."""
        if not self.pieces:
            return [(0, 1, self.numbers[word])] if word in self.numbers else []
        text = WORD_START + word
        length = len(text)
        end = length + 1
        spans = [(0, 1, WORD_START), (length, end, WORD_END), (0, end, text)]
        spans += [(a, b, text[a:b]) for a in range(1, length) for b in range(a + 1, end)]
        arcs = sorted((a, b, n) for a, b, name in spans for n in self._spelled.get(name, ()))
        reached = {0}
        for a, b, _ in arcs:
            if a in reached:
                reached.add(b)
        return arcs if end in reached else []
