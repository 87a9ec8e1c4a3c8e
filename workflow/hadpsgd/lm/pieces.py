"""Pieces of words (sentencepiece, unigram model): an open vocabulary.

A piece that begins a word begins with the sign "▁"; pieces put one after another give the words
back. Source: Kudo, ACL 2018 (unigram language model segmentation).
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import sentencepiece

from hadpsgd.corpus.lang.lexicon_fst import WORD_START
from hadpsgd.errors import UserError


def train(sentences: Iterable[Sequence[str]], size: int, whole: Collection[str]) -> bytes:
    """Train a model of about `size` pieces; returns it as sentencepiece's file holds it.

    Every letter of the text is a piece, so that any word of these letters can be spelled. Words
    of `whole` (noise) are no part of it.

    Raises:
        UserError: no text, or too few pieces for its letters.
    """
    texts = (" ".join(word for word in words if word not in whole) for words in sentences)
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([text for text in texts if text]),
            model_writer=model,
            model_type="unigram",
            vocab_size=size,
            hard_vocab_limit=False,
            character_coverage=1.0,
            normalization_rule_name="identity",
            bos_id=-1,
            eos_id=-1,
            unk_id=0,
            num_threads=1,  # more give other pieces
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"lm.pieces: sentencepiece fails: {reason}", fix="Change it") from None
    return model.getvalue()


@dataclass
class Pieces:
    """A trained model; words of `whole` stay one piece each."""

    model: bytes
    whole: frozenset[str]
    _processor: Any = None
    _known: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=self.model)

    @property
    def names(self) -> list[str]:
        """All pieces but the unknown one, sorted; then those of `whole`."""
        numbers = range(self._processor.get_piece_size())
        found = {
            self._processor.id_to_piece(n) for n in numbers if not self._processor.is_unknown(n)
        }
        return sorted(found) + sorted(WORD_START + word for word in self.whole)

    def of(self, word: str) -> list[str]:
        """The pieces of a word."""
        if word in self.whole:
            return [WORD_START + word]
        if word not in self._known:
            self._known[word] = self._processor.encode(word, out_type=str)
        return self._known[word]

    def letters(self, word: str) -> list[str]:
        """A word spelled letter by letter."""
        if word in self.whole:
            return self.of(word)
        first, rest = word[0], list(word[1:])
        begin = WORD_START + first
        known = self._processor.piece_to_id(begin) != self._processor.unk_id()
        return [*([begin] if known else [WORD_START, first]), *rest]

    def with_spelled(self, sentences: Sequence[Sequence[str]]) -> Iterator[str]:
        """Sentences as lines of pieces; then sentences again, in each one word spelled, until
        every word was spelled once.

        Every word was new once: so often, and in such places, are words that the text lacks
        expected (as in Witten and Bell's estimate). Without these lines the language model would
        know nothing of letters that longer pieces have swallowed.
        """
        yield from self.segmented(sentences)
        new = {word for words in sentences for word in words} - self.whole
        left = sentences
        while left := [words for words in left if not new.isdisjoint(words)]:
            for words in left:
                place = next((i for i, word in enumerate(words) if word in new), None)
                if place is None:
                    continue
                new.remove(words[place])
                parts = [self.of(word) for word in words]
                parts[place] = self.letters(words[place])
                yield " ".join(piece for part in parts for piece in part)

    def segmented(self, sentences: Iterable[Sequence[str]]) -> Iterator[str]:
        """Sentences as lines of pieces."""
        for words in sentences:
            yield " ".join(piece for word in words for piece in self.of(word))
