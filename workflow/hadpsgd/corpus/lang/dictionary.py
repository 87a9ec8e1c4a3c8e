"""Read Kaldi's `data/local/dict`: lexicon and phone lists, each fault named by file and line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hadpsgd.errors import UserError
from hadpsgd.files import plain_or_gzipped, read_whole

RESERVED_WORDS = frozenset({"<eps>", "<s>", "</s>"})
RESERVED_PHONES = frozenset({"<eps>"})


@dataclass(frozen=True)
class Pronunciation:
    """One line of the lexicon: a word, its probability and its phones."""

    word: str
    probability: float
    phones: tuple[str, ...]


Groups = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Dictionary:
    """A dict folder. A group is a line of a phone list: its phones share a tree root."""

    lexicon: tuple[Pronunciation, ...]
    silence: Groups
    nonsilence: Groups
    optional_silence: str
    extra_questions: Groups


def read_dictionary(folder: Path) -> Dictionary:
    """Read and check a dict folder (lexiconp.txt goes before lexicon.txt, as in Kaldi).

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
    return Dictionary(_lexicon(folder, phones), silence, nonsilence, optional[0][0], extra)


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        text = read_whole(path).decode("utf-8")
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
            if phone in RESERVED_PHONES or phone.startswith("#"):
                raise UserError(f"'{phone}' cannot be a phone: reserved", where=folder / name)
            seen.add(phone)
    return seen


def _lexicon(folder: Path, phones: set[str]) -> tuple[Pronunciation, ...]:
    path = plain_or_gzipped(folder / "lexiconp.txt")
    weighted = path.exists()
    path = path if weighted else plain_or_gzipped(folder / "lexicon.txt")
    entries: dict[tuple[str, tuple[str, ...]], Pronunciation] = {}
    for number, fields in _lines(path):
        where = f"{path}:{number}"
        word, rest = fields[0], fields[1:]
        probability = _probability(rest.pop(0), where) if weighted and rest else 1.0
        if word in RESERVED_WORDS or word.startswith("#"):
            raise UserError(f"'{word}' cannot be a word: reserved", where=where)
        if not rest:
            raise UserError(f"word '{word}' has no pronunciation", where=where)
        for phone in rest:
            if phone not in phones:
                raise UserError(
                    f"phone '{phone}' of word '{word}' is in no phone list", where=where
                )
        if (word, tuple(rest)) in entries:
            raise UserError(f"word '{word}' has this pronunciation twice", where=where)
        entries[word, tuple(rest)] = Pronunciation(word, probability, tuple(rest))
    if not entries:
        raise UserError("no word in it", where=path)
    return tuple(entries.values())


def _probability(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= 1:
        raise UserError(f"'{text}' is not a probability above 0, at most 1", where=where)
    return value
