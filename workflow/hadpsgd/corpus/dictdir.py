"""Kaldi's data/local/dict: the lexicon and the lists of silence and speech phones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hadpsgd.corpus.lang.dictionary import read_pronunciations
from hadpsgd.corpus.tables import Report, raise_fault
from hadpsgd.files import write_text

Pronunciations = Mapping[str, Iterable[tuple[str, ...]]]
"""Word to its pronunciations."""

SILENCE = "SIL"
SPOKEN_NOISE = "SPN"
NOISES = (SILENCE, SPOKEN_NOISE, "NSN", "LAU")
"""Phones that are no speech: silence, spoken noise, other noise, laughter."""
UNKNOWN = "<UNK>"
NON_WORDS: Pronunciations = {UNKNOWN: [(SPOKEN_NOISE,)], "!SIL": [(SILENCE,)]}
"""What Kaldi's recipes put in front of a lexicon."""
RESERVED = frozenset({"<s>", "</s>", "<eps>", "#0"})
"""Words that mean something else in Kaldi's graphs."""


@dataclass
class Lexicon:
    """Pronunciations by word, in the order of the file, and their probabilities."""

    words: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    probabilities: dict[tuple[str, tuple[str, ...]], float] = field(default_factory=dict)

    def __contains__(self, word: object) -> bool:
        return word in self.words

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __len__(self) -> int:
        return len(self.words)

    def add(self, word: str, phones: tuple[str, ...]) -> bool:
        """Add a pronunciation; False where the word has it already."""
        known = self.words.setdefault(word, [])
        if phones in known:
            return False
        known.append(phones)
        return True

    @property
    def phones(self) -> list[str]:
        """All phones, sorted."""
        return sorted({p for prons in self.words.values() for pron in prons for p in pron})


def read_lexicon(path: Path, report: Report = raise_fault) -> Lexicon:
    """Read lexicon.txt (`word phone ...`), or lexiconp.txt (`word probability phone ...`).

    Faults reported and errors raised: those of `read_pronunciations`.
    """
    lexicon = Lexicon()
    for _, entry in read_pronunciations(path, report):
        lexicon.words.setdefault(entry.word, []).append(entry.phones)
        lexicon.probabilities[entry.word, entry.phones] = entry.probability
    return lexicon


def write_lexicon(path: Path, lexicon: Pronunciations) -> None:
    """Write `word phone ...`, one pronunciation a line."""
    rows = (f"{w} {' '.join(phones)}\n" for w, prons in lexicon.items() for phones in prons)
    write_text(path, "".join(rows))


def write_weighted(path: Path, lexicon: Lexicon) -> None:
    """Write lexiconp.txt, `word probability phone ...`, with `<UNK>` and `!SIL` as `write_dict`."""
    rows = [
        f"{word} {lexicon.probabilities.get((word, phones), 1.0):g} {' '.join(phones)}\n"
        for word, pronunciations in {**NON_WORDS, **lexicon.words}.items()
        for phones in pronunciations
    ]
    write_text(path, "".join(rows))


def write_dict(folder: Path, lexicon: Pronunciations, questions: Iterable[str] = ()) -> None:
    """Write lexicon.txt, silence_phones.txt, nonsilence_phones.txt, optional_silence.txt.

    `<UNK>` (spoken noise) and `!SIL` are put first where the lexicon lacks them. `questions`
    are lines of extra_questions.txt (sets of phones for the decision tree).
    """
    folder.mkdir(parents=True, exist_ok=True)
    entries = {**NON_WORDS, **lexicon}
    write_lexicon(folder / "lexicon.txt", entries)
    phones = {p for prons in entries.values() for pron in prons for p in pron}
    silence = [p for p in NOISES if p in phones]
    files = {
        "silence_phones.txt": silence,
        "nonsilence_phones.txt": sorted(phones - set(silence)),
        "optional_silence.txt": [SILENCE],
        "extra_questions.txt": [" ".join(silence), *questions],
    }
    for name, lines in files.items():
        write_text(folder / name, "".join(f"{line}\n" for line in lines))
