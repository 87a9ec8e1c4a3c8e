"""The words of a neural language model: those of the n-gram that the lexicon has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from hadpsgd.lm.arpa import BOS, EOS, UNK
from hadpsgd.lm.vocabulary import Vocabulary

BEGIN, END = 0, 1
"""Numbers of <s> and </s>."""


@dataclass(frozen=True)
class Words:
    """Words by number: <s>, </s>, then the others.

    names: all of them. other: what stands for words that are not among them.
    """

    names: tuple[str, ...]
    other: str

    @property
    def fault(self) -> str:
        """What no list of words has; empty where there is nothing."""
        if not all(isinstance(name, str) for name in (*self.names, self.other)):
            return "a word that is no text"
        if self.names[:2] != (BOS, EOS):
            return f"words that do not begin with {BOS} and {EOS}"
        if len(self._numbers) != len(self):
            return "a word that stands there twice"
        return "" if self.other in self else f"no {self.other}, which stands for other words"

    @classmethod
    def of(cls, ngram: Iterable[str], vocabulary: Vocabulary) -> Words:
        """Those of an n-gram's words that the vocabulary has, too.

        What the vocabulary takes for other words is one of them, or else <unk> is.
        """
        both = set(ngram) & vocabulary.words - {BOS, EOS}
        other = vocabulary.oov if vocabulary.oov in both else UNK
        return cls((BOS, EOS, *sorted(both | {other})), other)

    def __len__(self) -> int:
        """How many."""
        return len(self.names)

    def __contains__(self, word: str) -> bool:
        """Whether it has a number of its own."""
        return word in self._numbers

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    def numbers(self, sentence: Sequence[str]) -> list[int]:
        """Of a sentence's words, without its beginning and end."""
        other = self._numbers[self.other]
        return [self._numbers.get(word, other) for word in sentence]
