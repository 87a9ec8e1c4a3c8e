"""The words of a lang folder, and texts seen through them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hadpsgd.corpus.lang.directory import read_symbols
from hadpsgd.errors import UserError
from hadpsgd.lm.arpa import BOS, EOS, UNK
from hadpsgd.texts import sentences, words_of


@dataclass
class Vocabulary:
    """Words that can be recognised; counts what a text has beyond them."""

    words: frozenset[str]
    oov: str = UNK
    """What stands for other words: the lang folder's OOV word, else <unk>."""
    seen: int = 0
    """Words read so far."""
    unknown: Counter[str] = field(default_factory=Counter)
    """Words read so far that the vocabulary lacks."""

    @classmethod
    def of_lang(cls, lang: Path) -> Vocabulary:
        """The vocabulary of a lang folder.

        Raises:
            UserError: words.txt is missing, damaged or without words, oov.txt is no word.
        """
        path = Path(lang) / "words.txt"
        if not path.exists():
            raise UserError("missing", where=path, fix="`hadpsgd lang` makes it")
        words = frozenset(read_symbols(path).keys() - {"<eps>", "#0", BOS, EOS})
        if not words:
            raise UserError("no words", where=path, fix="Make the lang folder again")
        return cls(words, _oov_word(Path(lang) / "oov.txt"))

    def map(self, text: Path) -> Iterator[list[str]]:
        """The sentences of a text, words outside the vocabulary replaced; empty lines left out.

        Raises:
            UserError: no such file, not UTF-8, a language model instead of a text, or <s> and </s>
                written out.
        """
        for number, words in sentences(text):
            if BOS in words or EOS in words:
                raise UserError(
                    f"{BOS} or {EOS} in a sentence",
                    where=f"{text}:{number}",
                    fix="They are added by themselves: leave them out",
                )
            yield [self._word(word) for word in words]

    def _word(self, word: str) -> str:
        self.seen += 1
        if word in self.words:
            return word
        self.unknown[word] += 1
        return self.oov

    def report(self) -> dict[str, object]:
        """Counts of words and of those outside the vocabulary, the most frequent ones named."""
        return {
            "words": self.seen,
            "oov": self.unknown.total(),
            "oov_percent": 100.0 * self.unknown.total() / self.seen if self.seen else 0.0,
            "oov_types": len(self.unknown),
            "oov_words": dict(sorted(self.unknown.items(), key=lambda e: (-e[1], e[0]))[:50]),
        }


def _oov_word(path: Path) -> str:
    """The word of oov.txt; <unk> where there is no such file, or nothing in it."""
    try:
        words = words_of(path.read_text(encoding="utf-8")) if path.exists() else []
    except UnicodeDecodeError:
        raise UserError("not UTF-8", where=path, fix="Convert it: iconv -t UTF-8") from None
    if len(words) > 1:
        raise UserError(f"{len(words)} words", where=path, fix="Name one word there")
    return words[0] if words else UNK
