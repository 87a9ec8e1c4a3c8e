"""What is left out of hypotheses before they are scored, and acronyms as references write them.

Kaldi's egs/swbd/s5c does both to the CTM before hubscr sees it (local/score_sclite.sh,
local/map_acronyms_ctm.py): noises, unknown words, hesitations and words broken off go, since the
reference may lack them without loss; `u._c._l._a.` becomes four words that share its time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from hadpsgd.config.decoding import Scoring
from hadpsgd.corpus.stm import lines_of
from hadpsgd.errors import UserError
from hadpsgd.scoring.formats import TimedWord
from hadpsgd.texts import words_of
from hadpsgd.uncounted import Uncounted

HESITATION = "%HESITATION"
"""What NIST's references have for a filled pause."""

_DOTTED = re.compile(r"[a-z]\.(_[a-z]\.)*(s|'s)?", re.IGNORECASE)


@dataclass(frozen=True)
class Filters(Uncounted):
    """Words that do not count, and acronyms; case aside.

    acronyms: lower-case words to the words that stand for them.
    """

    acronyms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dotted: bool = False
    """Whether acronyms are known by their spelling too: a._b._c."""

    @classmethod
    def of(cls, settings: Scoring) -> Filters:
        """What a config asks for.

        Raises:
            UserError: the map of acronyms is missing, or has a bad line.
        """
        acronyms = read_acronyms(Path(settings.acronym_map)) if settings.acronym_map else {}
        words = Uncounted.of(settings)
        return cls(words.dropped, words.patterns, acronyms, settings.dotted_acronyms)

    def written(self, word: str) -> tuple[str, ...]:
        """A word that counts as references write it: itself, or an acronym's letters."""
        known = self.acronyms.get(word.lower())
        if known is None and self.dotted and _DOTTED.fullmatch(word):
            known = tuple(word.replace(".", "").split("_"))
        return known or (word,)

    def text(self, text: str) -> str:
        """A transcript in the lexicon's words, filtered as hypotheses are: what a set without an
        stm is scored against."""
        kept = (part for w in words_of(text) if not self.drop(w) for part in self.written(w))
        return " ".join(kept)

    def heard(self, text: str) -> list[str]:
        """The lexicon's words of a reference as NIST writes them: acronyms for their letters,
        without marks of optional words and without what does not count."""
        words = [bare for word in words_of(text) if (bare := word.strip("()"))]
        words = [word for word in words if word.upper() != HESITATION and not self.drop(word)]
        found: list[str] = []
        while words:
            for length in range(min(self._longest, len(words)), 0, -1):
                part = tuple(word.lower() for word in words[:length])
                if length == 1 or part in self._inverse:
                    found.append(self._inverse.get(part, words[0]) if length > 1 else words[0])
                    del words[:length]
                    break
        return found

    @cached_property
    def _inverse(self) -> dict[tuple[str, ...], str]:
        return {letters: word for word, letters in self.acronyms.items() if len(letters) > 1}

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._inverse), default=1)

    def spread(self, word: TimedWord) -> Iterator[TimedWord]:
        """The words that a timed word stands for; they share its time, to hundredths of a second,
        the last one having what is left."""
        parts = self.written(word.word)
        if len(parts) == 1:
            yield word if parts[0] == word.word else replace(word, word=parts[0])
            return
        begin, whole = round(word.begin, 2), round(word.duration, 2)
        slot = round(whole / len(parts), 2)
        for number, part in enumerate(parts, 1):
            length = slot if number < len(parts) else whole - slot * (len(parts) - 1)
            yield replace(word, begin=begin, duration=max(length, 0.0), word=part)
            begin += slot

    def timed(self, words: Iterable[TimedWord]) -> Iterator[TimedWord]:
        """A recogniser's words; marks of alternatives (<ALT>) stay."""
        for word in words:
            if word.word.upper().startswith("<ALT"):
                yield word
            elif not self.drop(word.word):
                yield from self.spread(word)


def read_acronyms(path: Path) -> dict[str, tuple[str, ...]]:
    """Read Kaldi's acronyms.map: `word<tab>in the lexicon<tab>in references`, lower-cased keys.

    Raises:
        UserError: it is missing, empty, or a line has not three fields.
    """
    acronyms = {}
    for number, line in enumerate(lines_of(path), 1):
        fields = [field.strip() for field in line.split("\t")]
        if len(fields) != 3 or not all(fields) or len(fields[1].split()) > 1:
            raise UserError(
                f"'{line.strip()}': not three fields with tabs between them",
                where=f"{path}:{number}",
                fix="Write: word, acronym of the lexicon, letters (local/format_acronyms_dict.py)",
            )
        acronyms[fields[1].lower()] = tuple(fields[2].split())
    if not acronyms:
        raise UserError("no acronyms", where=path, fix="Leave scoring.acronym_map out")
    return acronyms
