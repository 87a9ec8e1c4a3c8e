"""The lang folder against the one that Kaldi's prepare_lang.sh made from the same lexicon."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import kaldifst
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hadpsgd.cli import main
from hadpsgd.config.lang import Lang
from hadpsgd.corpus.lang import topology
from hadpsgd.corpus.lang.dictionary import read_dictionary
from hadpsgd.corpus.lang.directory import copy_lang, read_symbols, write_lang
from hadpsgd.corpus.lang.lexicon_fst import Entry, add_disambiguation
from hadpsgd.errors import UserError
from hadpsgd.files import MADE


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A dict folder of four words."""
    folder = tmp_path / "dict"
    folder.mkdir()
    (folder / "lexicon.txt").write_text("<unk> SPN\na AH\nan AH N\nand AH N\nand AH N D\n")
    (folder / "silence_phones.txt").write_text("SIL\nSPN\n")
    (folder / "nonsilence_phones.txt").write_text("AH\nD\nN\n")
    (folder / "optional_silence.txt").write_text("SIL\n")
    (folder / "extra_questions.txt").write_text("SIL SPN\n")
    return folder


@pytest.fixture(scope="module")
def ours(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our lang folder from the lexicon of Kaldi's."""
    lang, out = shared / "kaldi_an4/lang", tmp_path_factory.mktemp("lang")
    folder = out / "dict"
    folder.mkdir()
    shutil.copyfile(lang / "lexicon.txt", folder / "lexicon.txt")
    bare = [line.split()[0].removesuffix("_B") for line in (lang / "phones/sets.txt").open()]
    (folder / "silence_phones.txt").write_text("SIL\nSPN\n")
    (folder / "nonsilence_phones.txt").write_text("".join(f"{p}\n" for p in bare[2:]))
    (folder / "optional_silence.txt").write_text("SIL\n")
    (folder / "extra_questions.txt").write_text("SIL SPN\n")
    write_lang(read_dictionary(folder), Lang(position_dependent=True), out / "lang")
    return out / "lang"


def arcs(path: Path) -> list[str]:
    """The arcs of a transducer, sorted: the order of equal output labels is not defined."""
    return sorted(kaldifst.StdVectorFst.to_str(kaldifst.StdVectorFst.read(str(path))).split("\n"))


def test_every_file_equals_kaldis(shared: Path, ours: Path) -> None:
    kaldi = shared / "kaldi_an4/lang"
    extra = {"4gram.arpa.gz", "G.fst", "lexicon.txt", "lm_train.txt"}
    names = {p.relative_to(kaldi) for p in kaldi.rglob("*") if p.is_file()} - {*map(Path, extra)}
    assert names | {Path(MADE)} == {p.relative_to(ours) for p in ours.rglob("*") if p.is_file()}
    for name in sorted(names):
        if name.suffix == ".fst":
            assert arcs(ours / name) == arcs(kaldi / name), name
        else:
            # Kaldi's script leaves a blank at some line ends
            texts = [re.sub(r" +\n", "\n", (lang / name).read_text()) for lang in (ours, kaldi)]
            assert texts[0] == texts[1], name


def test_topology_text_is_read_back(shared: Path) -> None:
    text = (shared / "kaldi_an4/lang/topo").read_text()
    read = topology.read_text(shared / "kaldi_an4/lang/topo")
    assert topology.to_text(read) == text
    assert (read.num_pdf_classes(1), read.num_pdf_classes(11)) == (5, 3)


def test_without_positions(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "lang"
    write_lang(read_dictionary(small), Lang(silence_probability=0.25), out)
    phones = read_symbols(out / "phones.txt")
    assert list(phones) == ["<eps>", "SIL", "SPN", "AH", "D", "N", "#0", "#1", "#2", "#3"]
    assert (out / "phones/sets.txt").read_text() == "SIL\nSPN\nAH\nD\nN\n"
    assert not (out / "phones/word_boundary.txt").exists()
    assert (out / "oov.txt").read_text() == "<unk>\n"
    fst = kaldifst.StdVectorFst.read(str(out / "L.fst"))
    start = {arc.nextstate: arc.weight.value for arc in kaldifst.ArcIterator(fst, fst.start)}
    assert start == pytest.approx({1: -math.log(0.75), 2: -math.log(0.25)})


def test_pronunciation_probabilities(small: Path, tmp_path: Path) -> None:
    (small / "lexiconp.txt").write_text("a 1.0 AH\nan 0.5 AH N\nand 0.25 AH N D\n")
    write_lang(read_dictionary(small), Lang(), tmp_path / "lang")
    words = read_symbols(tmp_path / "lang/words.txt")
    fst = kaldifst.StdVectorFst.read(str(tmp_path / "lang/L.fst"))
    costs = {arc.olabel: arc.weight.value for arc in kaldifst.ArcIterator(fst, 1)}
    assert costs[words["and"]] == pytest.approx(-math.log(0.25))
    assert costs[words["an"]] == pytest.approx(-math.log(0.5))


PHONE = st.sampled_from("ABC")
LEXICON = st.lists(st.lists(PHONE, min_size=1, max_size=4).map(tuple), min_size=1, max_size=12)


@settings(max_examples=60)
@given(LEXICON)
def test_marked_pronunciations_are_prefix_free(prons: list[tuple[str, ...]]) -> None:
    entries: list[Entry] = [(f"w{i}", 1.0, pron) for i, pron in enumerate(prons)]
    marked, highest = add_disambiguation(entries)
    result = [phones for _, _, phones in marked]
    assert len(set(result)) == len(prons)
    for one in result:
        assert not any(one == other[: len(one)] for other in result if other is not one)
    assert highest == max((int(p[1:]) for r in result for p in r if p[0] == "#"), default=0)


FAULTS = [
    ("lexicon.txt", "a AH\nb X\n", "lexicon.txt:2: phone 'X' of word 'b'"),
    ("lexicon.txt", "a AH\nb\n", "lexicon.txt:2: word 'b' has no phones. Write: word phones"),
    ("lexicon.txt", "a AH\na AH\n", "lexicon.txt:2: pronunciation of 'a' twice. Remove one"),
    ("lexicon.txt", "a AH\r\n", "lexicon.txt:1: Windows line end"),
    ("lexicon.txt", "<s> AH\n", "lexicon.txt:1: word '<s>' is reserved. Remove it"),
    ("lexicon.txt", "", "no word in it"),
    ("lexiconp.txt", "a 1.5 AH\n", "lexiconp.txt:1: '1.5' is not a probability"),
    ("lexiconp.txt", "a AH\n", "lexiconp.txt:1: word 'a' has no phones"),
    ("lexiconp.txt", "a AH AH\n", "lexiconp.txt:1: 'AH' is not a probability"),
    ("nonsilence_phones.txt", "AH\nSIL\n", "phone 'SIL' is listed twice"),
    ("nonsilence_phones.txt", "#1\n", "'#1' cannot be a phone"),
    ("optional_silence.txt", "AH\n", "'AH' is not in silence_phones.txt"),
    ("extra_questions.txt", "Q\n", "phone 'Q' is in no phone list"),
]


@pytest.mark.parametrize(("name", "content", "message"), FAULTS)
def test_a_fault_is_one_clear_line(small: Path, name: str, content: str, message: str) -> None:
    (small / name).write_bytes(content.encode())
    with pytest.raises(UserError, match=re.escape(message)):
        read_dictionary(small)


def test_unknown_oov_word(small: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the lexicon lacks '<oov>'"):
        write_lang(read_dictionary(small), Lang(oov="<oov>"), tmp_path / "lang")
    assert not (tmp_path / "lang").exists()


def _drop_topology(lang: Path) -> None:
    (lang / "topo").unlink()


def _other_phones(lang: Path) -> None:
    text = (lang / "phones.txt").read_text()
    (lang / "phones.txt").write_text(text.replace("D 4\n", ""))


def _fewer_words(lang: Path) -> None:
    (lang / "words.txt").write_text("<eps> 0\n")


def _no_transducer(lang: Path) -> None:
    (lang / "L.fst").write_bytes(b"\0\0")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_drop_topology, "topo: no such file"),
        (_other_phones, "phone 4 is not both in topo and in phones.txt"),
        (_fewer_words, "are not in phones.txt and words.txt"),
        (_no_transducer, "not an OpenFst transducer"),
    ],
)
def test_a_kaldi_lang_is_checked(
    small: Path, tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    source = tmp_path / "source"
    write_lang(read_dictionary(small), Lang(), source)
    damage(source)
    with pytest.raises(UserError, match=message):
        copy_lang(source=source, out=tmp_path / "lang")


def test_commands(shared: Path, small: Path, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("name: x\ncorpus: {kind: builtin}\n")
    out = tmp_path / "own"
    assert main(["lang", "--config", str(config), "--dict", str(small), "--out", str(out)]) == 0
    assert (out / "L_disambig.fst").exists()
    kaldi = shared / "kaldi_an4/lang"
    config.write_text(
        "name: x\ncorpus: {kind: builtin}\n"
        f"alignment: {{kind: kaldi, ali_dir: nowhere, lang_dir: {kaldi}}}\n"
    )
    out = tmp_path / "theirs"
    assert main(["lang", "--config", str(config), "--dict", str(small), "--out", str(out)]) == 0
    assert (out / "words.txt").read_bytes() == (kaldi / "words.txt").read_bytes()
    assert (out / "phones/sets.int").read_bytes() == (kaldi / "phones/sets.int").read_bytes()
