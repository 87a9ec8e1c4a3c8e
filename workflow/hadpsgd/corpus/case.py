"""Words whose case is not the lexicon's, such as the upper-case transcripts of NIST's test sets."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["as-is", "lower", "upper"]
FOLDS: dict[Kind, Callable[[str], str]] = {"lower": str.lower, "upper": str.upper}


@dataclass(frozen=True, kw_only=True)
class Case:
    """How words are taken: as the lexicon has them where it does, otherwise folded."""

    kind: Kind
    lexicon: Container[str]

    def word(self, word: str) -> str:
        """A word of a transcript."""
        return word if self.kind == "as-is" or word in self.lexicon else FOLDS[self.kind](word)

    def text(self, text: str) -> str:
        """A transcript; its spaces are kept."""
        if self.kind == "as-is":
            return text
        return " ".join(self.word(word) if word else word for word in text.split(" "))


def better_case(
    missing: Mapping[str, int], lexicon: Container[str]
) -> tuple[Kind, int] | tuple[None, int]:
    """The case in which the lexicon has at least half of the words that it lacks as written.

    missing: words and how often each is said. Returns the case and how many are left then.
    """
    total = sum(missing.values())
    for kind, fold in FOLDS.items():
        left = sum(count for word, count in missing.items() if fold(word) not in lexicon)
        if missing and 2 * left <= total:
            return kind, left
    return None, total
