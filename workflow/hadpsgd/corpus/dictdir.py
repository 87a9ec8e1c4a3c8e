"""Kaldi's data/local/dict: the lexicon and the lists of silence and speech phones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hadpsgd.corpus.tables import Report, raise_fault
from hadpsgd.errors import UserError
from hadpsgd.files import read_whole, write_text

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
    """Pronunciations by word, in the order of the file."""

    words: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)

    def __contains__(self, word: object) -> bool:
        return word in self.words

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

    Faults reported: a word without phones, a pronunciation twice, a reserved word.

    Raises:
        UserError: the file is not there, not UTF-8 or empty.
    """
    lexicon = Lexicon()
    skip = 2 if path.name.removesuffix(".gz") == "lexiconp.txt" else 1
    try:
        lines = read_whole(path).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise UserError(f"lexicon cannot be read ({reason})", where=path) from None
    for number, line in enumerate(lines, 1):
        where = f"{path}:{number}"
        word, *rest = line.split() or [""]
        phones = tuple(rest[skip - 1 :])
        if not phones:
            report(UserError(f"word '{word}' has no phones", where=where, fix="Write: word phones"))
        elif word in RESERVED:
            report(UserError(f"word '{word}' is reserved", where=where, fix="Remove it"))
        elif not lexicon.add(word, phones):
            report(UserError(f"pronunciation of '{word}' twice", where=where, fix="Remove one"))
    if not lexicon.words:
        raise UserError("empty lexicon", where=path)
    return lexicon


def write_lexicon(path: Path, lexicon: Pronunciations) -> None:
    """Write `word phone ...`, one pronunciation a line."""
    rows = (f"{w} {' '.join(phones)}\n" for w, prons in lexicon.items() for phones in prons)
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
