"""Pieces of words (sentencepiece, unigram model): an open vocabulary.

Known words stay whole; a new word is spelled: the sign "▁", its pieces, then "</w>". A piece is
made of graphones: letters with their sound. Sources: Kudo, ACL 2018 (unigram language model
segmentation); Bazzi and Glass, ICSLP 2000 (one model of unknown words inside the word n-gram);
Bisani and Ney, Interspeech 2005 (graphones in it).
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import sentencepiece

from hadpsgd.corpus.lang.lexicon_fst import WORD_START
from hadpsgd.errors import UserError
from hadpsgd.lm.graphones import Graphone, joined

Word = tuple[Graphone, ...]
_FIRST_SIGN = 0xE000  # Unicode's private signs: sentencepiece sees one for each graphone


class Pieces:
    """A trained model.

    model: sentencepiece's file. graphones: what its signs stand for.
    """

    def __init__(self, model: bytes, graphones: Sequence[Graphone]) -> None:
        self.model = model
        self.graphones = tuple(graphones)
        self._processor: Any = sentencepiece.SentencePieceProcessor(model_proto=model)
        self._signs = _signs(self.graphones)
        self._graphones = {sign: graphone for graphone, sign in self._signs.items()}

    @classmethod
    def train(cls, words: Iterable[Word], size: int) -> Pieces:
        """Train a model of about `size` pieces on a list of words, or more.

        Every graphone of the words is a piece, so that any word made of them can be spelled.

        Raises:
            UserError: no words.
        """
        words = sorted(words)
        graphones = sorted({graphone for word in words for graphone in word})
        signs = _signs(graphones)
        texts = ["".join(signs[graphone] for graphone in word) for word in words]
        least = len(graphones) + 1  # the unknown piece counts
        return cls(_train(texts, max(size, least)), graphones)

    @property
    def pieces(self) -> list[Graphone]:
        """All pieces but the unknown one, sorted."""
        numbers = range(self._processor.get_piece_size())
        names = (
            self._processor.id_to_piece(n) for n in numbers if not self._processor.is_unknown(n)
        )
        return sorted({self._piece(name) for name in names})

    def of(self, word: Word) -> list[str]:
        """Names of the pieces of a word."""
        signs = "".join(self._signs[graphone] for graphone in word)
        pieces: list[str] = self._processor.encode(signs, out_type=str)
        return [self._piece(piece).name for piece in pieces]

    def spellings(self, words: Sequence[Word]) -> Iterator[list[str]]:
        """Of every word its pieces; then words graphone by graphone, until each was a piece.

        Otherwise the n-grams would know nothing of graphones that longer pieces have swallowed.
        """
        unused = {graphone.name for word in words for graphone in word}
        for word in words:
            pieces = self.of(word)
            unused.difference_update(pieces)
            yield pieces
        for word in words:
            names = [graphone.name for graphone in word]
            if not unused.isdisjoint(names):
                unused.difference_update(names)
                yield names

    def _piece(self, signs: str) -> Graphone:
        return joined(self._graphones[sign] for sign in signs)


def _signs(graphones: Iterable[Graphone]) -> dict[Graphone, str]:
    return {graphone: chr(_FIRST_SIGN + i) for i, graphone in enumerate(graphones)}


def _train(words: Iterable[str], size: int) -> bytes:
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(words),
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
