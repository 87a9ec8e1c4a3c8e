"""Mississippi State's dictionary of Switchboard (sw-ms98-dict.text) as a dict folder.

As Kaldi's egs/swbd/s5c makes it (local/swbd1_prepare_dict.sh, format_acronyms_dict.py): words
without marks and in lower case, acronyms as `i._b._m.`, noises with phones of their own. What that
recipe corrects in the dictionary by a patch is not corrected here.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from pathlib import Path

from hadpsgd.corpus.dictdir import Lexicon, write_lexicon
from hadpsgd.corpus.ldc import names
from hadpsgd.corpus.ldc.folders import one
from hadpsgd.corpus.ldc.words import Acronyms, mapped
from hadpsgd.corpus.stm import lines_of
from hadpsgd.errors import UserError
from hadpsgd.files import write_text

_NON_WORDS = {
    "!sil": "sil",
    "<unk>": "spn",
    "[vocalized-noise]": "spn",
    "[noise]": "nsn",
    "[laughter]": "lau",
}
_SILENCE = ("sil", "spn", "nsn", "lau")
_NAMES = (
    "ey/b iy/s iy/d iy/iy/eh f/jh iy/ey ch/ay/jh ey/k ey/eh l/eh m/eh n/ow/p iy/k y uw/aa r/eh s/"
    "t iy/y uw/v iy/d ah b ax l y uw/eh k s/w ay/z iy"
)
_LETTERS = {
    letter: tuple(name.split())
    for letter, name in zip(string.ascii_uppercase, _NAMES.split("/"), strict=True)
}
"""Names of the letters in the dictionary's phones."""
_SPELT = re.compile(r"([A-Za-z]+?)('s|s)?")


def read(transcripts: Path) -> tuple[Lexicon, Acronyms]:
    """The lexicon, lower case; and which words of transcripts are acronyms in it.

    Raises:
        UserError: the dictionary is missing, or a line is no word with phones.
    """
    lexicon, acronyms = Lexicon(), dict[str, str]()
    for word, phones in (*((w, (p,)) for w, p in _NON_WORDS.items()), ("i", _LETTERS["I"])):
        lexicon.add(word, phones)
    for word, phones in [*_entries(one(transcripts, names.DICTIONARY)), *_LETTERS.items()]:
        plain = word if word in _NON_WORDS else mapped(word)
        if acronym := _acronym(plain, phones):
            acronyms[plain] = acronym
        lexicon.add(acronym or plain.lower(), phones)
    return lexicon, acronyms


def write(transcripts: Path, *, folder: Path) -> None:
    """Write a dict folder; raises as `read`."""
    lexicon, _ = read(transcripts)
    phones = [phone for phone in lexicon.phones if phone not in _SILENCE]
    folder.mkdir(parents=True, exist_ok=True)
    write_lexicon(folder / "lexicon.txt", dict(sorted(lexicon.words.items())))
    lists = {"silence_phones.txt": _SILENCE, "nonsilence_phones.txt": phones}
    for name, lines in {**lists, "optional_silence.txt": ("sil",)}.items():
        write_text(folder / name, "".join(f"{line}\n" for line in lines))
    write_text(folder / "extra_questions.txt", "")


def _entries(path: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    for number, line in enumerate(lines_of(path), 1):
        word, *phones = line.split() or ["#"]
        if word.startswith("#"):
            continue
        if not phones:
            raise UserError(f"no phones of '{word}'", where=f"{path}:{number}")
        yield word, tuple(phone.lower() for phone in phones)


def _acronym(word: str, phones: tuple[str, ...]) -> str:
    """i._b._m. where the phones are the names of the letters, with .s or .'s; else nothing.

    A lower-case letter alone is a word (a, i).
    """
    match = _SPELT.fullmatch(word)
    if match is None or (len(word) == 1 and word.islower()):
        return ""
    letters, ending = match[1], match[2] or ""
    if ending and phones[-1] not in ("s", "z"):
        return ""
    names = tuple(phone for letter in letters.upper() for phone in _LETTERS[letter])
    if names != (phones[:-1] if ending else phones):
        return ""
    return "._".join(letters.lower()) + "." + ending
