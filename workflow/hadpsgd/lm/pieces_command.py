"""`hadpsgd pieces`: pieces of words, their lang folder, and the texts in pieces."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from hadpsgd import config
from hadpsgd.config import Config
from hadpsgd.corpus.lang.dictionary import Dictionary, Pronunciation, read_dictionary
from hadpsgd.corpus.lang.directory import read_symbols, write_lang
from hadpsgd.corpus.lang.graphemes import graphemes, non_words, spelled, with_lexicon
from hadpsgd.corpus.lang.lexicon_fst import WORD_START, piece_arcs
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_folder
from hadpsgd.lm.arpa import open_text
from hadpsgd.lm.pieces import Pieces, train


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the stage."""
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True, help="one sentence a line")
    parser.add_argument("--dev", type=Path, help="development text")
    parser.add_argument("--dict", type=Path, required=True, help="Kaldi's data/local/dict")
    parser.add_argument("--lang", type=Path, required=True, help="lang folder of the alignments")
    parser.add_argument("--out", type=Path, required=True)


def run(args: argparse.Namespace) -> int:
    """Write OUT/{pieces.model,train.txt,dev.txt,lang/}."""
    settings = config.load(args.config)
    check(settings)
    dictionary = spelled(read_dictionary(args.dict))
    noises = frozenset(non_words(dictionary))
    sentences = list(_sentences(args.text))
    pieces = Pieces(train(sentences, settings.lm.pieces, noises), noises)
    with atomic_folder(args.out) as out:
        (out / "pieces.model").write_bytes(pieces.model)
        _write(out / "train.txt", pieces.with_spelled(sentences))
        if args.dev:
            _write(out / "dev.txt", pieces.segmented(_sentences(args.dev)))
        lexicon = of_pieces(dictionary, pieces)
        oov = _oov(settings, noises)
        lang = settings.lang.model_copy(update={"oov": oov})
        write_lang(lexicon, lang, out / "lang", piece_arcs)
        _same_phones(out / "lang", args.lang)
    print(f"{len(pieces.names)} pieces of {len(sentences)} sentences", file=sys.stderr)
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


def of_pieces(dictionary: Dictionary, pieces: Pieces) -> Dictionary:
    """A dictionary of pieces, each pronounced by its letters, on the same phones."""
    noises = non_words(dictionary)
    lexicon = [replace(entry, word=WORD_START + word) for word, entry in noises.items()]
    lexicon += [
        Pronunciation(piece, 1.0, graphemes(piece.removeprefix(WORD_START)))
        for piece in pieces.names
        if piece.removeprefix(WORD_START) not in noises
    ]
    # the letters of the alignments, also those that no piece has
    made = with_lexicon(dictionary, tuple(lexicon))
    strange = {p for group in made.nonsilence for p in group} - {
        p for group in dictionary.nonsilence for p in group
    }
    if strange:
        raise UserError(
            f"lm.pieces: no word of the lexicon has the letter '{sorted(strange)[0]}'",
            fix="Add such words to lexicon and training data, or remove it from the text",
        )
    return replace(made, nonsilence=dictionary.nonsilence)


def _oov(settings: Config, noises: frozenset[str]) -> str:
    known = [settings.lang.oov, "<UNK>", "<unk>", "<SPOKEN_NOISE>"]
    return next((WORD_START + word for word in known if word in noises), "")


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


def _write(path: Path, lines: Iterator[str]) -> None:
    with path.open("w", encoding="utf-8") as stream:
        stream.writelines(f"{line}\n" for line in lines)
