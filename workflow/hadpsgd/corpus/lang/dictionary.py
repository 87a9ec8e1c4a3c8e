"""Read Kaldi's `data/local/dict`: lexicon and phone lists, each fault named by file and line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hadpsgd.corpus.lang.silences import Beside, Ends, beside_of, ends_of
from hadpsgd.corpus.tables import Report, raise_fault
from hadpsgd.errors import UserError
from hadpsgd.files import plain_or_gzipped, read_whole

RESERVED_WORDS = frozenset({"<eps>", "<s>", "</s>"})
"""They mean something else in Kaldi's graphs, as do words that begin with #."""
LEXICONS = ("lexiconp_silprob.txt", "lexiconp.txt", "lexicon.txt")
"""Lexicons of a dict folder; the first one that is there holds, as in Kaldi."""
SILENCE_AT_ENDS = "silprob.txt"
"""What lies beside lexiconp_silprob.txt."""
_NUMBERS = dict(zip(LEXICONS, (4, 1, 0), strict=True))
"""Numbers between word and phones."""
RESERVED_PHONES = frozenset({"<eps>"})


@dataclass(frozen=True)
class Pronunciation:
    """One line of the lexicon: a word, its probability, its phones, and silence beside it."""

    word: str
    probability: float
    phones: tuple[str, ...]
    beside: Beside | None = None


Groups = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Dictionary:
    """A dict folder. A group is a line of a phone list: its phones share a tree root.

    ends: silence at the ends of utterances, where all words have silence beside them.
    """

    lexicon: tuple[Pronunciation, ...]
    silence: Groups
    nonsilence: Groups
    optional_silence: str
    extra_questions: Groups
    ends: Ends | None = None


def read_dictionary(folder: Path) -> Dictionary:
    """Read and check a dict folder; the first of `LEXICONS` holds.

    Raises:
        UserError: a file is missing, or a line does not fit (file and line are named).
    """
    folder = Path(folder)
    silence = _groups(folder / "silence_phones.txt")
    nonsilence = _groups(folder / "nonsilence_phones.txt")
    phones = _check_phones(folder, silence, nonsilence)
    optional = _groups(folder / "optional_silence.txt")
    if len(optional) != 1 or len(optional[0]) != 1:
        raise UserError("one silence phone is expected", where=folder / "optional_silence.txt")
    if optional[0][0] not in {phone for group in silence for phone in group}:
        raise UserError(
            f"'{optional[0][0]}' is not in silence_phones.txt",
            where=folder / "optional_silence.txt",
        )
    questions = folder / "extra_questions.txt"
    extra = _groups(questions) if questions.exists() else ()
    for group in extra:
        for phone in group:
            if phone not in phones:
                raise UserError(f"phone '{phone}' is in no phone list", where=questions)
    lexicon = _lexicon(folder, phones)
    ends = _ends(folder / SILENCE_AT_ENDS) if lexicon[0].beside else None
    return Dictionary(lexicon, silence, nonsilence, optional[0][0], extra, ends)


def _ends(path: Path) -> Ends:
    try:
        return ends_of({name: " ".join(rest) for _, (name, *rest) in _lines(path)})
    except ValueError as error:
        raise UserError(str(error), where=path) from None


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        text = read_whole(path).decode("utf-8-sig")
    except FileNotFoundError:
        raise UserError(
            "no such file", where=path, fix="A dict folder is laid out as Kaldi's data/local/dict"
        ) from None
    except UnicodeDecodeError:
        raise UserError("not UTF-8", where=path) from None
    if "\r" in text:
        number = text[: text.index("\r")].count("\n") + 1
        raise UserError("Windows line end", where=f"{path}:{number}", fix="Run dos2unix on it")
    for number, line in enumerate(text.split("\n"), 1):
        # not str.split(): a no-break space is part of a word, as it is for Kaldi
        if fields := [field for field in line.replace("\t", " ").split(" ") if field]:
            yield number, fields


def _groups(path: Path) -> Groups:
    groups = tuple(tuple(fields) for _, fields in _lines(path))
    if not groups and path.name != "extra_questions.txt":
        raise UserError("no phone in it", where=path)
    return groups


def _check_phones(folder: Path, silence: Groups, nonsilence: Groups) -> set[str]:
    seen: set[str] = set()
    for name, groups in (("silence_phones.txt", silence), ("nonsilence_phones.txt", nonsilence)):
        for phone in (phone for group in groups for phone in group):
            if phone in seen:
                raise UserError(f"phone '{phone}' is listed twice", where=folder / name)
            if _is_reserved(phone):
                raise UserError(f"'{phone}' cannot be a phone: reserved", where=folder / name)
            seen.add(phone)
    return seen


def _is_reserved(phone: str) -> bool:
    """Whether it is a symbol of Kaldi's graphs: of nothing, or what tells homophones apart."""
    return phone in RESERVED_PHONES or phone.startswith("#")


def _lexicon(folder: Path, phones: set[str]) -> tuple[Pronunciation, ...]:
    entries = []
    for where, entry in read_pronunciations(lexicon_file(folder)):
        for phone in entry.phones:
            if phone not in phones:
                raise UserError(
                    f"phone '{phone}' of word '{entry.word}' is in no phone list", where=where
                )
        entries.append(entry)
    return tuple(entries)


def lexicon_file(folder: Path) -> Path:
    """The lexicon of a dict folder: the first of `LEXICONS` that is there."""
    paths = [plain_or_gzipped(folder / name) for name in LEXICONS]
    return next((path for path in paths if path.is_file()), paths[-1])


def numbers_of(path: Path) -> int:
    """How many numbers a lexicon has between word and phones, by its name: 0 in lexicon.txt, or
    with any other name, 1 in lexiconp.txt, 4 in lexiconp_silprob.txt."""
    return _NUMBERS.get(path.name.removesuffix(".gz"), 0)


def read_pronunciations(
    path: Path, report: Report = raise_fault
) -> Iterator[tuple[str, Pronunciation]]:
    """Yield (file and line, pronunciation) of lexicon.txt (`word phone ...`), lexiconp.txt
    (`word probability phone ...`) or lexiconp_silprob.txt (three more numbers: `Beside`).

    Faults reported: a word without phones, a pronunciation twice, a reserved word or phone, a
    probability or factor that is none.

    Raises:
        UserError: the file is not there, not UTF-8, has Windows line ends or no word.
    """
    seen: set[tuple[str, tuple[str, ...]]] = set()
    numbers = numbers_of(path)
    for number, (word, *rest) in _lines(path):
        where = f"{path}:{number}"
        given, phones = rest[:numbers], tuple(rest[numbers:])
        beside = beside_of(given[1:]) if len(given) == 4 else None
        if not phones:
            fault, fix = f"word '{word}' has no phones", f"Write: word{' number' * numbers} phones"
        elif word in RESERVED_WORDS or word.startswith("#"):
            fault, fix = f"word '{word}' is reserved", "Remove it"
        elif phone := next(filter(_is_reserved, phones), ""):
            fault, fix = f"'{phone}' of word '{word}' cannot be a phone: reserved", "Rename it"
        elif (word, phones) in seen:
            fault, fix = f"pronunciation of '{word}' twice", "Remove one"
        elif (probability := _probability(*given[:1])) is None:
            fault, fix = f"'{given[0]}' is not a probability above 0, at most 1", ""
        elif len(given) == 4 and beside is None:
            fault = f"'{' '.join(given[1:])}': not a probability below 1 and two factors above 0"
            fix = "utils/dict_dir_add_pronprobs.sh writes them after the first probability"
        else:
            seen.add((word, phones))
            yield where, Pronunciation(word, probability, phones, beside)
            continue
        report(UserError(fault, where=where, fix=fix))
    if not seen:
        raise UserError("no word in it", where=path)


def refuse_silence_probabilities(dictionary: Dictionary, *, key: str) -> None:
    """Refuse silence probabilities by pronunciation where words are spelled.

    Raises:
        UserError: there are some; names the config's key.
    """
    if dictionary.ends:
        raise UserError(
            f"{key}: {LEXICONS[0]} has probabilities of silence by pronunciation, and words are"
            " spelled here",
            fix=f"Point dict_dir at a copy of the folder without {LEXICONS[0]}",
        )


def _probability(text: str = "1") -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value <= 1 else None
