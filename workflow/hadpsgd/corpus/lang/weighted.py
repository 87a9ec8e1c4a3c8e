"""The lexicon of a lang folder, ours or Kaldi's, with other probabilities.

Written as a dict folder and as a lang folder whose phones and words have the numbers of before, so
that it fits the tree and the models of the old one.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hadpsgd.corpus.lang.dictionary import SILENCE_AT_ENDS, Pronunciation
from hadpsgd.corpus.lang.directory import POSITIONS, read_symbols
from hadpsgd.corpus.lang.lexicon_fst import (
    Entry,
    Silence,
    add_disambiguation,
    add_word_self_loops,
    compile_lexicon,
    context_arcs,
)
from hadpsgd.corpus.lang.silences import Ends, ends_text
from hadpsgd.corpus.lang.word_match import WordMatcher
from hadpsgd.errors import UserError
from hadpsgd.files import write_text
from hadpsgd.texts import words_of


@dataclass(frozen=True)
class LangLexicon:
    """What a lang folder knows of its lexicon.

    entries: word and phones, as they are in phones.txt, of every pronunciation. matcher: the same
    in numbers.
    """

    folder: Path
    words: dict[str, int]
    phones: dict[str, int]
    matcher: WordMatcher
    entries: tuple[tuple[str, tuple[str, ...]], ...]
    optional_silence: str

    @classmethod
    def read(cls, folder: Path) -> LangLexicon:
        """Read it from words.txt, phones.txt and phones/align_lexicon.int.

        Raises:
            UserError: a file is missing or damaged, or they do not fit.
        """
        words, phones = (read_symbols(folder / f"{name}.txt") for name in ("words", "phones"))
        matcher = WordMatcher.read(folder)
        word_of, phone_of = ({n: name for name, n in table.items()} for table in (words, phones))
        try:
            entries = tuple(
                (word_of[word], tuple(phone_of[phone] for phone in form))
                for word, forms in matcher.pronunciations.items()
                for form in forms
                if word
            )
        except KeyError as error:
            raise UserError(
                f"number {error} is not in words.txt or phones.txt",
                where=folder / "phones/align_lexicon.int",
                fix="Make the lang folder again",
            ) from None
        if not entries or not all(form for _, form in entries):
            raise UserError(
                "words without phones (lm.pieces makes such folders)" if entries else "no words",
                where=folder / "phones/align_lexicon.int",
                fix="Give the lang folder of the alignments",
            )
        optional = _rows(folder / "phones/optional_silence.txt")
        if len(optional) != 1 or len(optional[0]) != 1:
            raise UserError("one phone is expected", where=folder / "phones/optional_silence.txt")
        return cls(folder, words, phones, matcher, entries, optional[0][0])

    @property
    def has_positions(self) -> bool:
        """Whether phones are marked by their place in the word."""
        return (self.folder / "phones/word_boundary.txt").is_file()

    def bare(self, phones: Iterable[str]) -> tuple[str, ...]:
        """Phones without their place in the word."""
        if not self.has_positions:
            return tuple(phones)
        return tuple(phone[:-2] if phone[-2:] in POSITIONS else phone for phone in phones)

    def write_lang(self, lexicon: Sequence[Pronunciation], ends: Ends, out: Path) -> None:
        """Write a copy of the folder whose L.fst and L_disambig.fst have these probabilities.

        Raises:
            UserError: the folder has too few disambiguation symbols: its lexicon is another.
        """
        shutil.copytree(
            self.folder, out, copy_function=shutil.copyfile, ignore=shutil.ignore_patterns(".*")
        )
        for folder in (out, out / "phones"):
            folder.chmod(0o755)
        plain: list[Entry] = [(entry.word, entry.probability, entry.phones) for entry in lexicon]
        marked, highest = add_disambiguation(plain)
        symbol = f"#{highest + 1}"
        if symbol not in self.phones:
            raise UserError(
                f"no symbol {symbol}, which phones/align_lexicon.int needs",
                where=self.folder / "phones.txt",
                fix="Make the lang folder again (utils/prepare_lang.sh)",
            )
        besides = [entry.beside for entry in lexicon if entry.beside]
        for name, entries, disambig in (("L", plain, ""), ("L_disambig", marked, symbol)):
            silence = Silence(self.optional_silence, ends.overall, disambig)
            arcs = context_arcs(besides, ends)
            fst = compile_lexicon(entries, silence, self.phones, self.words, arcs)
            if disambig:
                add_word_self_loops(fst, phone=self.phones["#0"], word=self.words["#0"])
            fst.write(str(out / f"{name}.fst"))

    def write_dict(self, lexicon: Sequence[Pronunciation], ends: Ends, out: Path) -> None:
        """Write a dict folder of Kaldi's: phone lists, and the lexicon three times, with all
        probabilities, with those of pronunciations, and without."""
        out.mkdir()
        rows = sorted((entry.word, self.bare(entry.phones), entry) for entry in lexicon)
        lines: dict[str, list[str]] = {"lexicon": [], "lexiconp": [], "lexiconp_silprob": []}
        for word, phones, entry in rows:
            assert entry.beside is not None
            said, probability = " ".join(phones), f"{entry.probability:g}"
            after, *factors = (f"{value:g}" for value in entry.beside)
            lines["lexicon"].append(f"{word} {said}")
            lines["lexiconp"].append(f"{word} {probability} {said}")
            lines["lexiconp_silprob"].append(
                f"{word} {probability} {after} {' '.join(factors)} {said}"
            )
        groups = [
            list(dict.fromkeys(self.bare(row))) for row in _rows(self.folder / "phones/sets.txt")
        ]
        silence = {phone for row in _rows(self.folder / "phones/silence.txt") for phone in row}
        quiet = set(self.bare(sorted(silence)))
        lines["silence_phones"] = [" ".join(group) for group in groups if quiet.issuperset(group)]
        lines["nonsilence_phones"] = [
            " ".join(group) for group in groups if not quiet.issuperset(group)
        ]
        lines["optional_silence"] = [self.optional_silence]
        lines["extra_questions"] = list(self._questions())
        for name, content in lines.items():
            write_text(out / f"{name}.txt", "".join(f"{line}\n" for line in content))
        write_text(out / SILENCE_AT_ENDS, ends_text(ends))

    def _questions(self) -> Iterable[str]:
        """The dictionary's questions about phones, without those about their place in the word."""
        for row in _rows(self.folder / "phones/extra_questions.txt"):
            phones = dict.fromkeys(self.bare(row))
            if not self.has_positions or len(row) >= len(POSITIONS) * len(phones):
                yield " ".join(phones)


def _rows(path: Path) -> list[list[str]]:
    try:
        return [row for line in path.read_text("utf-8").split("\n") if (row := words_of(line))]
    except FileNotFoundError:
        raise UserError("no such file", where=path, fix="Make the lang folder again") from None
    except UnicodeDecodeError:
        raise UserError("not UTF-8", where=path) from None
