"""Write a Kaldi lang folder from a dict folder, or check and copy a Kaldi one."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import kaldifst

from hadpsgd.config.lang import Lang
from hadpsgd.corpus.lang import needed, topology
from hadpsgd.corpus.lang.dictionary import Dictionary, Groups
from hadpsgd.corpus.lang.lexicon_fst import (
    Entry,
    LexiconArcs,
    Silence,
    add_disambiguation,
    add_word_self_loops,
    arcs_of,
    compile_lexicon,
)
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_folder

POSITIONS = {"_B": "begin", "_E": "end", "_I": "internal", "_S": "singleton"}
OOV_WORDS = ("<UNK>", "<unk>", "<SPOKEN_NOISE>")


@dataclass(frozen=True)
class Phones:
    """Phones as they are in phones.txt, position marks included."""

    silence: tuple[str, ...]
    nonsilence: tuple[str, ...]
    sets: Groups
    questions: Groups
    boundaries: tuple[tuple[str, str], ...]


def make_phones(dictionary: Dictionary, position_dependent: bool) -> Phones:
    """Position marks _B, _E, _I, _S on every phone (silence also without), as Kaldi adds them."""
    if not position_dependent:
        return Phones(
            tuple(phone for group in dictionary.silence for phone in group),
            tuple(phone for group in dictionary.nonsilence for phone in group),
            dictionary.silence + dictionary.nonsilence,
            dictionary.extra_questions,
            (),
        )
    quiet = {phone for group in dictionary.silence for phone in group}

    def marked(group: Sequence[str]) -> tuple[str, ...]:
        return tuple(
            phone + mark
            for phone in group
            for mark in (("",) if phone in quiet else ()) + tuple(POSITIONS)
        )

    silence = tuple(phone for group in dictionary.silence for phone in marked(group))
    nonsilence = tuple(phone for group in dictionary.nonsilence for phone in marked(group))
    loud = [phone for group in dictionary.nonsilence for phone in group]
    still = [phone for group in dictionary.silence for phone in group]
    questions = [marked(group) for group in dictionary.extra_questions]
    questions += [tuple(phone + mark for phone in loud) for mark in POSITIONS]
    questions += [tuple(phone + mark for phone in still) for mark in ("", *POSITIONS)]
    boundaries = tuple(
        (phone, "nonword" if phone in quiet else POSITIONS[phone[-2:]])
        for phone in (*silence, *nonsilence)
    )
    sets = tuple(marked(group) for group in dictionary.silence + dictionary.nonsilence)
    return Phones(silence, nonsilence, sets, tuple(questions), boundaries)


def _positioned(phones: Sequence[str]) -> tuple[str, ...]:
    if len(phones) == 1:
        return (phones[0] + "_S",)
    return (phones[0] + "_B", *(phone + "_I" for phone in phones[1:-1]), phones[-1] + "_E")


def write_lang(
    dictionary: Dictionary, settings: Lang, out: Path, arcs: LexiconArcs | None = None
) -> None:
    """Write a lang folder: what Kaldi's utils/prepare_lang.sh leaves, its options from `settings`.

    `arcs` makes the lexicon transducers: of pieces of words; left out, of words.

    Raises:
        UserError: the word for unknown words is not in the lexicon.
    """
    phones = make_phones(dictionary, settings.position_dependent)
    entries: list[Entry] = [
        (p.word, p.probability, _positioned(p.phones) if settings.position_dependent else p.phones)
        for p in dictionary.lexicon
    ]
    marked, highest = add_disambiguation(entries)
    disambig = [f"#{number}" for number in range(highest + 2)]
    names = ["<eps>", *phones.silence, *phones.nonsilence, *disambig]
    phone_ids = {name: number for number, name in enumerate(names)}
    vocabulary = sorted({word for word, _, _ in entries})
    words = ["<eps>", *vocabulary, "#0", "<s>", "</s>"]
    word_ids = {word: number for number, word in enumerate(words)}
    oov = _oov(settings.oov, vocabulary)
    optional, arcs = dictionary.optional_silence, arcs or arcs_of(dictionary)
    plain = Silence(optional, settings.silence_probability)
    ended = Silence(optional, settings.silence_probability, disambig[-1])

    with atomic_folder(out) as folder:
        _symbols(folder / "phones.txt", phone_ids)
        _symbols(folder / "words.txt", word_ids)
        (folder / "topo").write_text(topology.to_text(_topology(phones, phone_ids, settings)))
        if oov:
            (folder / "oov.txt").write_text(f"{oov}\n")
            (folder / "oov.int").write_text(f"{word_ids[oov]}\n")
        lists = _Lists(folder / "phones", phone_ids)
        lists.one_a_line("silence", phones.silence)
        lists.one_a_line("nonsilence", phones.nonsilence)
        lists.one_a_line("context_indep", phones.silence)
        lists.one_a_line("optional_silence", [optional])
        lists.one_a_line("disambig", disambig)
        lists.table("sets", phones.sets)
        lists.table("roots", [("shared", "split", *group) for group in phones.sets], keep=2)
        lists.table("extra_questions", phones.questions)
        if phones.boundaries:
            lists.table("word_boundary", phones.boundaries)
        lists.alignment_lexicon(entries, optional, word_ids)
        lists.word_disambiguation(word_ids["#0"])
        fst = compile_lexicon(entries, plain, phone_ids, word_ids, arcs)
        fst.write(str(folder / "L.fst"))
        fst = compile_lexicon(marked, ended, phone_ids, word_ids, arcs)
        add_word_self_loops(fst, phone=phone_ids["#0"], word=word_ids["#0"])
        fst.write(str(folder / "L_disambig.fst"))


def _oov(wanted: str, vocabulary: Sequence[str]) -> str:
    if not wanted:
        return next((word for word in OOV_WORDS if word in vocabulary), "")
    if wanted not in vocabulary:
        raise UserError(
            f"lang.oov: the lexicon lacks '{wanted}'", fix="Add it, with the noise phone"
        )
    return wanted


def _topology(phones: Phones, ids: dict[str, int], settings: Lang) -> topology.Topology:
    return topology.make_topology(
        [
            ([ids[p] for p in phones.nonsilence], topology.bakis(settings.nonsilence_states)),
            ([ids[p] for p in phones.silence], topology.silence(settings.silence_states)),
        ]
    )


def _symbols(path: Path, ids: dict[str, int]) -> None:
    path.write_text("".join(f"{name} {number}\n" for name, number in ids.items()), "utf-8")


class _Lists:
    """The files of `phones/`, each with names and with numbers."""

    def __init__(self, folder: Path, ids: dict[str, int]) -> None:
        folder.mkdir()
        self.folder, self.ids = folder, ids

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, "utf-8")

    def one_a_line(self, name: str, phones: Sequence[str]) -> None:
        numbers = [str(self.ids[phone]) for phone in phones]
        self._write(f"{name}.txt", "".join(f"{phone}\n" for phone in phones))
        self._write(f"{name}.int", "".join(f"{number}\n" for number in numbers))
        self._write(f"{name}.csl", ":".join(numbers) + "\n")

    def table(self, name: str, rows: Sequence[Sequence[str]], keep: int = 0) -> None:
        """Rows of phones; the first `keep` words, and what is no phone, stay words."""
        self._write(f"{name}.txt", "".join(" ".join(row) + "\n" for row in rows))
        numbered = [
            [word if i < keep else str(self.ids.get(word, word)) for i, word in enumerate(row)]
            for row in rows
        ]
        self._write(f"{name}.int", "".join(" ".join(row) + "\n" for row in numbered))

    def alignment_lexicon(
        self, entries: Sequence[Entry], silence: str, words: dict[str, int]
    ) -> None:
        rows = sorted({(word, *phones) for word, _, phones in entries} | {("<eps>", silence)})
        lines = [" ".join((row[0], *row)) for row in rows]
        self._write("align_lexicon.txt", "".join(f"{line}\n" for line in lines))
        numbers = [
            " ".join(map(str, [words[row[0]]] * 2 + [self.ids[phone] for phone in row[1:]]))
            for row in rows
        ]
        self._write("align_lexicon.int", "".join(f"{line}\n" for line in numbers))

    def word_disambiguation(self, word: int) -> None:
        self._write("wdisambig.txt", "#0\n")
        self._write("wdisambig_phones.int", f"{self.ids['#0']}\n")
        self._write("wdisambig_words.int", f"{word}\n")


_OPTIONAL = ("oov.txt", "oov.int")


def copy_lang(*, source: Path, out: Path) -> None:
    """Check a Kaldi lang folder and copy it (the grammar is left: it is made from the LM).

    Raises:
        UserError: a file is missing, or topology and lexicon do not fit phones.txt.
    """
    for name in needed.FILES:
        if not (source / name).is_file():
            raise UserError(
                "no such file",
                where=source / name,
                fix="Point alignment.lang_dir at the lang folder of the alignments",
            )
    names = read_symbols(source / "phones.txt")
    known = set(names.values())
    disambig = {int(line) for line in (source / "phones/disambig.int").read_text().split()}
    missing = sorted(
        set(topology.read_text(source / "topo").phones.tolist()) ^ (known - disambig - {0})
    )
    if missing:
        raise UserError(
            f"phone {missing[0]} is not both in topo and in phones.txt", where=source / "topo"
        )
    _check_lexicon(source, known)
    with atomic_folder(out) as folder:
        for name in (*needed.FILES, *_OPTIONAL):
            if (source / name).is_file():
                (folder / name).parent.mkdir(exist_ok=True)
                shutil.copyfile(source / name, folder / name)
        for path in sorted((source / "phones").iterdir()):
            if path.suffix in (".txt", ".int", ".csl"):
                shutil.copyfile(path, folder / "phones" / path.name)


def _check_lexicon(source: Path, phones: set[int]) -> None:
    words = set(read_symbols(source / "words.txt").values())
    try:
        fst = kaldifst.StdVectorFst.read(str(source / "L.fst"))
    except RuntimeError:
        fst = None
    if fst is None:
        raise UserError("not an OpenFst transducer of type vector", where=source / "L.fst")
    for state in kaldifst.StateIterator(fst):
        for arc in kaldifst.ArcIterator(fst, state):
            if arc.ilabel not in phones or arc.olabel not in words:
                raise UserError(
                    f"labels {arc.ilabel}:{arc.olabel} are not in phones.txt and words.txt",
                    where=source / "L.fst",
                )


def read_symbols(path: Path) -> dict[str, int]:
    """Read a symbol table (phones.txt, words.txt): name to number.

    Raises:
        UserError: missing file, or a line that is not `name number`.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise UserError("no such file", where=path) from None
    except UnicodeDecodeError:
        raise UserError("not UTF-8", where=path, fix="Convert it: iconv -t UTF-8") from None
    table: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        fields = line.replace("\t", " ").split(" ")
        if len(fields) != 2 or not fields[1].isdigit():
            raise UserError("not `name number`", where=f"{path}:{number}")
        table[fields[0]] = int(fields[1])
    return table
