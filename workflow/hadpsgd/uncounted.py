"""Words of the lexicon that are none where words are counted: noises, hesitations, broken words.

What is scored knows them (`scoring.filters`), and what looks at references before anything is
trained.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from hadpsgd.config.decoding import Scoring


@dataclass(frozen=True)
class Uncounted:
    """Case aside. dropped: whole words, lower case. patterns: regular expressions of whole words.
    By default every word counts."""

    dropped: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Scoring) -> Uncounted:
        """What a config asks for."""
        return Uncounted(
            frozenset(word.lower() for word in settings.dropped_words), tuple(settings.filters)
        )

    @cached_property
    def _compiled(self) -> list[re.Pattern[str]]:
        # not joined by |: groups would be counted on, and flags stand inside
        return [re.compile(one, re.IGNORECASE) for one in self.patterns]

    @cached_property
    def _known(self) -> dict[str, bool]:
        return {}

    def drop(self, word: str) -> bool:
        """Whether a word is none that counts."""
        known = self._known.get(word)
        if known is None:
            known = word.lower() in self.dropped or any(p.fullmatch(word) for p in self._compiled)
            self._known[word] = known
        return known
