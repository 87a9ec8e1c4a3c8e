"""`hadpsgd pieces`: pieces of words, how new words are spelled, a lang folder with both, texts."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from hadpsgd import config
from hadpsgd.config import Config
from hadpsgd.corpus.lang.dictionary import Dictionary, Pronunciation, read_dictionary
from hadpsgd.corpus.lang.directory import read_symbols, write_lang
from hadpsgd.corpus.lang.graphemes import graphemes, non_words, spelled
from hadpsgd.corpus.lang.lexicon_fst import WORD_END, WORD_START, piece_arcs
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_folder
from hadpsgd.lm.arpa import open_text
from hadpsgd.lm.pieces import Pieces, train, whole, with_new_words
from hadpsgd.lm.train import train as train_ngrams
from hadpsgd.lm.vocabulary import Vocabulary


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the stage."""
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True, help="one sentence a line")
    parser.add_argument("--dev", type=Path, help="development text")
    parser.add_argument("--dict", type=Path, required=True, help="Kaldi's data/local/dict")
    parser.add_argument("--lang", type=Path, required=True, help="lang folder of the alignments")
    parser.add_argument("--out", type=Path, required=True)


def run(args: argparse.Namespace) -> int:
    """Write OUT/{pieces.model,spelling.arpa.gz,train.txt,dev.txt,lang/}."""
    settings = config.load(args.config)
    check(settings)
    dictionary = spelled(read_dictionary(args.dict))
    noises = non_words(dictionary)
    words = sorted({entry.word for entry in dictionary.lexicon} - set(noises))
    pieces = Pieces(train(words, settings.lm.pieces))
    sentences = list(_sentences(args.text))
    with atomic_folder(args.out) as out:
        (out / "pieces.model").write_bytes(pieces.model)
        _write(out / "train.txt", with_new_words(sentences, noises))
        if args.dev:
            known = (list(map(whole, sentence)) for sentence in _sentences(args.dev))
            _write(out / "dev.txt", known)
        lang = settings.lang.model_copy(update={"oov": WORD_START})
        write_lang(with_pieces(dictionary, pieces), lang, out / "lang", piece_arcs)
        _same_phones(out / "lang", args.lang)
        _write(out / "words.txt", pieces.spellings(words))
        vocabulary = Vocabulary(frozenset(pieces.names))
        order = settings.lm.spelling_order
        train_ngrams(out / "words.txt", vocabulary, order, out / "spelling.arpa.gz")
    print(f"{len(pieces.names)} pieces of {len(words)} words", file=sys.stderr)
    return 0


def check(settings: Config) -> None:
    """Refuse what pieces cannot go with.

    Raises:
        UserError: no pieces are asked for, or words are not spelled.
    """
    if not settings.lm.pieces:
        raise UserError("lm.pieces is 0", fix="Say how many")
    if settings.lang.units != "graphemes" or settings.lang.position_dependent:
        raise UserError(
            "lm.pieces: pieces are spelled",
            fix="Set lang.units: graphemes, and leave lang.position_dependent out",
        )
    if settings.lm.arpa or settings.lm.sources:
        raise UserError(
            "lm.pieces: the language model is trained on the corpus' text alone",
            fix="Leave lm.arpa and lm.sources out",
        )


def with_pieces(dictionary: Dictionary, pieces: Pieces) -> Dictionary:
    """A dictionary of spelled words with pieces, and begin and end of what they spell."""
    lexicon = [replace(entry, word=whole(entry.word)) for entry in dictionary.lexicon]
    lexicon += [Pronunciation(piece, 1.0, graphemes(piece)) for piece in pieces.names]
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
            fix="Make it again with lang.units: graphemes",
        )


def _sentences(text: Path) -> Iterator[list[str]]:
    try:
        with open_text(text) as stream:
            for number, line in enumerate(stream, 1):
                if WORD_START in line:
                    raise UserError(f"the sign {WORD_START} in the text", where=f"{text}:{number}")
                if words := line.split():
                    yield words
    except FileNotFoundError:
        raise UserError("no such text", where=text) from None
    except UnicodeDecodeError:
        raise UserError("not UTF-8 text", where=text) from None


def _write(path: Path, sentences: Iterable[Sequence[str]]) -> None:
    with path.open("w", encoding="utf-8") as stream:
        stream.writelines(" ".join(words) + "\n" for words in sentences)
