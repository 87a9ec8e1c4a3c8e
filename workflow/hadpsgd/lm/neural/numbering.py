"""Texts as the numbers of a neural language model's words; texts of other words are refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

from hadpsgd.errors import UserError
from hadpsgd.lm.neural import text
from hadpsgd.lm.neural.words import Words
from hadpsgd.lm.vocabulary import Vocabulary

_EXAMPLES = 5


@dataclass(kw_only=True)
class Numbering:
    """Numbers the sentences of one text, and counts words that are not among the model's.

    Args:
        path: the text.
        lang: folder with words.txt.
        words: the model's.
        max_oov: share of the text's words that may be others.
    """

    path: Path
    lang: Path
    words: Words
    max_oov: float
    total: int = 0
    others: int = 0
    examples: list[str] = field(default_factory=list)

    def sentences(self) -> Iterator[list[int]]:
        """Yield the numbers of each sentence's words.

        Raises:
            UserError: the text cannot be read; at its end, more words are others than may be.
        """
        vocabulary = Vocabulary.of_lang(self.lang)
        stand = {self.words.other, vocabulary.oov}
        for sentence in vocabulary.map(self.path):
            self._count(sentence, stand)
            yield self.words.numbers(sentence)
        self.examples = [*vocabulary.unknown, *self.examples][:_EXAMPLES]
        self._check()

    def _count(self, sentence: Sequence[str], stand: Set[str]) -> None:
        """stand: words in place of those that the lexicon lacks."""
        self.total += len(sentence)
        for word in sentence:
            if word in stand:
                self.others += 1
            elif word not in self.words:
                self.others += 1
                if len(self.examples) < _EXAMPLES and word not in self.examples:
                    self.examples.append(word)

    def _check(self) -> None:
        if self.others <= self.max_oov * self.total:
            return
        such = f", such as {', '.join(self.examples)}" if self.examples else ""
        raise UserError(
            f"{self.others} of {self.total} words are not among those of n-gram and lexicon (more"
            f" than lm.neural.max_oov {self.max_oov:g}){such}",
            where=self.path,
            fix="Write it as the lexicon has words (upper or lower case), or raise the limit",
        )


def number(
    folder: Path, texts: Sequence[Path], *, lang: Path, words: Words, max_oov: float
) -> None:
    """Write the numbers of some texts, one after another, to a folder (`text.Text` reads it).

    Raises:
        UserError: one cannot be read or has too many other words; or there is no sentence.
    """

    def sentences() -> Iterator[list[int]]:
        for path in texts:
            numbering = Numbering(path=path, lang=lang, words=words, max_oov=max_oov)
            yield from numbering.sentences()

    if not text.write(folder, sentences()):
        raise UserError("no words", where=texts[0], fix="Give one sentence a line")
