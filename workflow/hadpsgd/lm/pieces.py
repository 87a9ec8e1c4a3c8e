"""Pieces of words (sentencepiece, unigram model): an open vocabulary.

Known words stay whole; a new word is spelled: the sign "▁", its pieces, then "</w>". Sources:
Kudo, ACL 2018 (unigram language model segmentation); Bazzi and Glass, ICSLP 2000 (one model of
unknown words inside the word n-gram).
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import sentencepiece

from hadpsgd.corpus.lang.lexicon_fst import WORD_END, WORD_START
from hadpsgd.errors import UserError


def train(words: Iterable[str], size: int) -> bytes:
    """Train a model of about `size` pieces on a list of words, as sentencepiece's file holds it.

    Every letter of the words is a piece, so that any word of these letters can be spelled.

    Raises:
        UserError: no words, or too few pieces for their letters.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sorted(words)),
            model_writer=model,
            model_type="unigram",
            vocab_size=size,
            hard_vocab_limit=False,
            character_coverage=1.0,
            normalization_rule_name="identity",
            add_dummy_prefix=False,
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


class Pieces:
    """A trained model."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._processor: Any = sentencepiece.SentencePieceProcessor(model_proto=model)

    @property
    def names(self) -> list[str]:
        """All pieces but the unknown one, sorted."""
        numbers = range(self._processor.get_piece_size())
        return sorted(
            self._processor.id_to_piece(n) for n in numbers if not self._processor.is_unknown(n)
        )

    def of(self, word: str) -> list[str]:
        """The pieces of a word."""
        pieces: list[str] = self._processor.encode(word, out_type=str)
        return pieces

    def spellings(self, words: Sequence[str]) -> Iterator[list[str]]:
        """Of every word its pieces; then words letter by letter, until every letter was a piece.

        Otherwise the n-grams would know nothing of letters that longer pieces have swallowed.
        """
        unused = {sign for word in words for sign in word}
        for word in words:
            pieces = self.of(word)
            unused.difference_update(pieces)
            yield pieces
        for word in words:
            if not unused.isdisjoint(word):
                unused.difference_update(word)
                yield list(word)

    def spelled(self, word: str) -> list[str]:
        """A word that is spelled, as language model and graph see it."""
        return [WORD_START, *self.of(word), WORD_END]


def whole(word: str) -> str:
    """A known word, as language model and graph see it."""
    return WORD_START + word


def with_new_words(
    sentences: Sequence[Sequence[str]], never: Collection[str] = ()
) -> Iterator[list[str]]:
    """Sentences of whole words; then sentences again, in each one word replaced by "▁", until
    every word but those of `never` (noise) was new once.

    Every word was new once: so often, and in such places, are words that the text lacks
    expected (as in Witten and Bell's estimate).
    """
    for words in sentences:
        yield [whole(word) for word in words]
    new = {word for words in sentences for word in words} - set(never)
    left = sentences
    while left := [words for words in left if not new.isdisjoint(words)]:
        for words in left:
            place = next((i for i, word in enumerate(words) if word in new), None)
            if place is None:
                continue
            new.remove(words[place])
            line = [whole(word) for word in words]
            line[place] = WORD_START
            yield line
