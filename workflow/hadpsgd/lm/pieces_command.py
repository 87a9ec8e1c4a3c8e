"""`hadpsgd pieces`: pieces of words, how new words are spelled, a lang folder with both, texts."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from hadpsgd import config
from hadpsgd.config import Config
from hadpsgd.corpus.lang.dictionary import (
    Dictionary,
    Pronunciation,
    read_dictionary,
    refuse_silence_probabilities,
)
from hadpsgd.corpus.lang.directory import read_symbols, write_lang
from hadpsgd.corpus.lang.graphemes import non_words, spelled
from hadpsgd.corpus.lang.lexicon_fst import SOUND, WORD_END, WORD_START, piece_arcs
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_folder
from hadpsgd.lm.graphones import align, of_letters
from hadpsgd.lm.pieces import Pieces, Word, whole, with_new_words
from hadpsgd.lm.train import train as train_ngrams
from hadpsgd.lm.vocabulary import Vocabulary
from hadpsgd.texts import sentences as sentences_of

_MAX_UNALIGNED = 0.05


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the stage."""
    parser.add_argument("--config", type=Path, required=True, help="config (YAML)")
    parser.add_argument("--text", type=Path, required=True, help="one sentence a line")
    parser.add_argument("--dev", type=Path, help="development text")
    parser.add_argument("--dict", type=Path, required=True, help="Kaldi's data/local/dict")
    parser.add_argument("--lang", type=Path, required=True, help="lang folder of the alignments")
    parser.add_argument("--out", type=Path, required=True, help="folder of the pieces to write")


def run(args: argparse.Namespace) -> int:
    """Write OUT/{pieces.model,spelling.arpa.gz,train.txt,dev.txt,lang/}."""
    settings = config.load(args.config)
    check(settings)
    dictionary = read_dictionary(args.dict)
    refuse_silence_probabilities(dictionary, key="lm.pieces")
    if settings.lang.units == "graphemes":
        dictionary = spelled(dictionary)
    noises = non_words(dictionary)
    words = sorted(_graphones(dictionary, noises, settings.lang.units == "graphemes"))
    pieces = Pieces.train(words, settings.lm.pieces)
    sentences = list(_sentences(args.text))
    with atomic_folder(args.out) as out:
        (out / "pieces.model").write_bytes(pieces.model)
        (out / "graphones.txt").write_text(
            "".join(f"{graphone.name}\n" for graphone in pieces.graphones), encoding="utf-8"
        )
        _write(out / "train.txt", with_new_words(sentences, noises))
        if args.dev:
            known = (list(map(whole, sentence)) for sentence in _sentences(args.dev))
            _write(out / "dev.txt", known)
        lang = settings.lang.model_copy(update={"oov": WORD_START})
        write_lang(with_pieces(dictionary, pieces), lang, out / "lang", piece_arcs)
        _same_phones(out / "lang", args.lang)
        _write(out / "words.txt", pieces.spellings(words))
        vocabulary = Vocabulary(frozenset(piece.name for piece in pieces.pieces))
        order = settings.lm.spelling_order
        train_ngrams(out / "words.txt", vocabulary, order, out / "spelling.arpa.gz")
    print(f"{len(vocabulary.words)} pieces of {len(words)} spellings", file=sys.stderr)
    return 0


def _graphones(dictionary: Dictionary, noises: Collection[str], plain: bool) -> set[Word]:
    """The words, noises left out, in graphones: letters alone, or letters and phones aligned.

    Raises:
        UserError: too many words cannot be aligned.
    """
    entries = [(e.word, e.phones) for e in dictionary.lexicon if e.word not in noises]
    if plain:
        return {of_letters(word) for word, _ in entries}
    aligned = align(entries)
    failed = [word for word, phones in entries if (word, phones) not in aligned]
    if failed:
        named = ", ".join(failed[:10])
        what = f"{len(failed)} of {len(entries)} pronunciations do not fit their letters: {named}"
        if len(failed) > _MAX_UNALIGNED * len(entries):
            raise UserError(f"lm.pieces: {what}", fix="Check the lexicon")
        print(f"left out of the spelling model: {what}", file=sys.stderr)
    return set(aligned.values())


def check(settings: Config) -> None:
    """Refuse what pieces cannot go with.

    Raises:
        UserError: no pieces are asked for, or phones know their place in a word.
    """
    if not settings.lm.pieces:
        raise UserError("lm.pieces is 0", fix="Say how many")
    if settings.lang.position_dependent:
        raise UserError(
            "lm.pieces: the same piece may begin, go on or end a word",
            fix="Leave lang.position_dependent out",
        )
    if settings.lm.arpa or settings.lm.sources:
        raise UserError(
            "lm.pieces: the language model is trained on the corpus' text alone",
            fix="Leave lm.arpa and lm.sources out",
        )


def with_pieces(dictionary: Dictionary, pieces: Pieces) -> Dictionary:
    """A dictionary of words with pieces, and begin and end of what they spell."""
    lexicon = [replace(entry, word=whole(entry.word)) for entry in dictionary.lexicon]
    lexicon += [Pronunciation(piece.name, 1.0, piece.phones) for piece in pieces.pieces]
    lexicon += [Pronunciation(mark, 1.0, ()) for mark in (WORD_START, WORD_END)]
    return replace(dictionary, lexicon=tuple(lexicon))


def _same_phones(ours: Path, theirs: Path) -> None:
    """Phones must have the numbers that tree and model know."""

    def phones(folder: Path) -> dict[str, int]:
        table = read_symbols(folder / "phones.txt")
        return {name: number for name, number in table.items() if not name.startswith("#")}

    if phones(ours) != phones(theirs):
        raise UserError(
            "lm.pieces: the lang folder of the alignments has other phones",
            where=theirs,
            fix="Make it again from this dictionary, with this config",
        )


def _sentences(text: Path) -> Iterator[list[str]]:
    for number, words in sentences_of(text):
        for sign in (WORD_START, SOUND):
            if any(sign in word for word in words):
                raise UserError(f"the sign {sign} in the text", where=f"{text}:{number}")
        yield words


def _write(path: Path, sentences: Iterable[Sequence[str]]) -> None:
    with path.open("w", encoding="utf-8") as stream:
        stream.writelines(" ".join(words) + "\n" for words in sentences)
