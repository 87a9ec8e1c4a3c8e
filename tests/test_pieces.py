"""An open vocabulary: spelled words, pieces of words, and words put together again."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import kaldifst
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hadpsgd.cli import main
from hadpsgd.config.lang import Lang
from hadpsgd.corpus.datadir import DataDir, Utterance
from hadpsgd.corpus.lang import joined
from hadpsgd.corpus.lang.dictionary import read_dictionary
from hadpsgd.corpus.lang.directory import read_symbols, write_lang
from hadpsgd.corpus.lang.graphemes import graphemes, spelled
from hadpsgd.decoding.lattice import Path as LatticePath
from hadpsgd.decoding.word_times import Span, WordAligner
from hadpsgd.errors import UserError
from hadpsgd.graph.command import grammar_of
from hadpsgd.graph.compile import compose_lg, read_fst
from hadpsgd.graph.transitions import Transitions
from hadpsgd.lm.pieces import Pieces, train
from hadpsgd.scoring import sentences
from hadpsgd.scoring.align import Edit
from hadpsgd.scoring.hypotheses import Timer, Words
from hadpsgd.scoring.nist import Sentence

TEXT = ["the wonder of it", "it is wonderful", "a restful rest", "i won't rest", "the other one"]
CONFIG = "name: t\ncorpus: {kind: builtin}\nlang: {units: graphemes}\nlm: {order: 3, pieces: 24}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dictionary, a text, a lang folder of spelled words, and what `hadpsgd pieces` makes."""
    out = tmp_path_factory.mktemp("pieces")
    (out / "config.yaml").write_text(CONFIG)
    (out / "text").write_text("".join(f"{line}\n" for line in [*TEXT * 3, "<UNK> rest"]))
    (out / "dict").mkdir()
    words = sorted({word for line in TEXT for word in line.split()})
    lexicon = ["<UNK> SPN", "!SIL SIL", *(f"{word} AH" for word in words)]
    (out / "dict/lexicon.txt").write_text("".join(f"{line}\n" for line in lexicon))
    (out / "dict/silence_phones.txt").write_text("SIL\nSPN\n")
    (out / "dict/nonsilence_phones.txt").write_text("AH\n")
    (out / "dict/optional_silence.txt").write_text("SIL\n")
    common = ["--config", str(out / "config.yaml"), "--dict", str(out / "dict")]
    assert main(["lang", *common, "--out", str(out / "lang")]) == 0
    common += ["--text", str(out / "text"), "--dev", str(out / "text"), "--lang", str(out / "lang")]
    assert main(["pieces", *common, "--out", str(out / "pieces")]) == 0
    return out


def test_words_are_spelled(folder: Path, tmp_path: Path) -> None:
    lexicon = {p.word: p.phones for p in spelled(read_dictionary(folder / "dict")).lexicon}
    assert lexicon["won't"] == ("w", "o", "n", "t")
    assert (lexicon["<UNK>"], lexicon["!SIL"]) == (("SPN",), ("SIL",))
    assert graphemes("É-tat ½'s 2nd") == ("é", "t", "a", "t", "½", "s", "2", "n", "d")
    (folder / "dict/lexicon.txt").rename(tmp_path / "lexicon.txt")
    try:
        (folder / "dict/lexicon.txt").write_text("<UNK> SPN\n-- AH\n")
        with pytest.raises(UserError, match="word '--' has no letters"):
            spelled(read_dictionary(folder / "dict"))
    finally:
        (tmp_path / "lexicon.txt").rename(folder / "dict/lexicon.txt")


@pytest.fixture(scope="module")
def pieces(folder: Path) -> Pieces:
    model = (folder / "pieces/pieces.model").read_bytes()
    return Pieces(model, frozenset({"<UNK>", "!SIL"}))


@given(st.lists(st.text("abdefhilnorstuw'", min_size=1, max_size=9), max_size=6))
@settings(deadline=None)
def test_words_come_back(pieces: Pieces, words: list[str]) -> None:
    """Any words of the text's letters, apostrophes too, the noise word among them."""
    words = [*words, "<UNK>", "rest"]
    [line] = pieces.segmented([words])
    names = line.split(" ")
    found = [joined.joined([names[i] for i in place]) for place in joined.groups(names)]
    letters = {sign for text in TEXT for sign in text}
    for word, again in zip(words, found, strict=True):
        assert again == word or not letters.issuperset(word)


def test_every_letter_is_in_the_text(folder: Path, pieces: Pieces) -> None:
    lines = (folder / "pieces/train.txt").read_text().splitlines()
    text = [line.split() for line in (folder / "text").read_text().splitlines()]
    assert lines[: len(text)] == list(pieces.segmented(text)) and len(lines) > len(text)
    letters = {sign for line in TEXT for sign in line} - {" "}
    said = {piece.removeprefix("▁") for line in lines for piece in line.split()}
    assert letters <= said
    again = [joined.joined(pieces.letters(word)) for word in ("listen", "the", "won't")]
    assert again == ["listen", "the", "won't"]


def test_every_word_is_new_once(pieces: Pieces) -> None:
    text = [line.split() for line in [*TEXT, "<UNK> rest", "the the wonder"]]
    lines = [line.split() for line in pieces.with_spelled(text)]
    spelled_words = []
    for line in lines[len(text) :]:
        parts = [[line[i] for i in place] for place in joined.groups(line)]
        words = [joined.joined(part) for part in parts]
        assert words in text
        changed = [w for w, part in zip(words, parts, strict=True) if part != pieces.of(w)]
        assert len(changed) <= 1  # none where the pieces are its letters
        spelled_words += changed
    every = {word for words in text for word in words} - {"<UNK>"}
    assert sorted(spelled_words) == sorted(w for w in every if pieces.of(w) != pieces.letters(w))
    assert len(lines) == len(text) + len(every)


def test_the_same_text_gives_the_same_pieces(folder: Path, pieces: Pieces) -> None:
    text = [line.split() for line in (folder / "text").read_text().splitlines()]
    assert train(text, 24, {"<UNK>"}) == train(text, 24, {"<UNK>"}) == pieces.model
    assert "▁<UNK>" in pieces.names and "<unk>" not in pieces.names
    with pytest.raises(UserError, match=r"lm\.pieces: sentencepiece fails"):
        train(text, 3, {"<UNK>"})


def accepted(folder: Path, phones: list[str]) -> set[str]:
    """The words that L gives for phones, put together."""
    numbers = read_symbols(folder / "phones.txt")
    names = {number: name for name, number in read_symbols(folder / "words.txt").items()}
    lines = [f"{i} {i + 1} {numbers[p]} {numbers[p]}" for i, p in enumerate(phones)]
    acceptor = kaldifst.compile("\n".join([*lines, f"{len(phones)} 0"]) + "\n")
    lexicon = kaldifst.StdVectorFst.read(str(folder / "L.fst"))
    kaldifst.arcsort(lexicon, "ilabel")
    paths = kaldifst.compose(acceptor, lexicon, match_side="right")
    found: set[str] = set()

    def walk(state: int, said: tuple[str, ...], empty: int) -> None:
        if paths.final(state).value < np.inf:
            found.add(" ".join(joined.joined([said[i] for i in g]) for g in joined.groups(said)))
        for arc in kaldifst.ArcIterator(paths, state):
            more = (names[arc.olabel],) if arc.olabel else ()
            left = empty - 1 if more and not arc.ilabel else empty
            if left >= 0:  # pieces without phones could go on for ever
                walk(arc.nextstate, said + more, 1 if arc.ilabel else left)

    if paths.num_states:
        walk(paths.start, (), 1)
    return found


def test_silence_is_between_words_alone(folder: Path) -> None:
    lang = folder / "pieces/lang"
    assert "wonst" in accepted(lang, list("wonst"))  # in no text
    spoken = accepted(lang, ["SIL", *"it", "SIL", *"is", "SIL"])
    assert "it is" in spoken and "itis" not in spoken
    twice = accepted(lang, [*"it", "SIL", "SIL", *"is"])
    assert "it !SIL is" in twice and "it is" not in twice  # one of them is the word of silence
    assert {"it is", "itis"} <= accepted(lang, list("itis"))


def test_the_graph_spells_words_outside_the_list(folder: Path, tmp_path: Path) -> None:
    """LG of pieces passes the letters of an unseen word; that of words does not."""
    out = {}
    for name, lang, text in (
        ("words", folder / "lang", folder / "text"),
        ("pieces", folder / "pieces/lang", folder / "pieces/train.txt"),
    ):
        arguments = ["lm", "--config", str(folder / "config.yaml"), "--lang", str(lang)]
        assert main([*arguments, "--text", str(text), "--out", str(tmp_path / name)]) == 0
        grammar = grammar_of(tmp_path / name / "3gram.arpa.gz", lang / "words.txt")
        lg = compose_lg(read_fst(lang / "L_disambig.fst"), grammar)
        numbers = read_symbols(lang / "phones.txt")
        marks = [numbers[n] for n in numbers if n.startswith("#")]
        letters = [numbers[letter] for letter in "listen"]
        lines = [f"{i} {i + 1} {number} {number}" for i, number in enumerate(letters)]
        lines += [f"{i} {i} {m} {m}" for i in range(len(letters) + 1) for m in marks]
        lines.sort(key=lambda line: int(line.split()[0]))
        spoken = kaldifst.compile("\n".join([*lines, f"{len(letters)} 0"]) + "\n")
        kaldifst.arcsort(spoken, "olabel")
        out[name] = kaldifst.compose(spoken, lg).num_states
    assert out["words"] == 0 and out["pieces"] > 0


def test_timed_words_of_pieces() -> None:
    names = {1: "▁won", 2: "der", 3: "▁", 4: "it", 5: "▁<UNK>"}
    words = Words(names, frozenset({"<unk>"}), pieces=True)
    aligner = WordAligner({1: [(1,)], 2: [(2,)], 3: [()], 4: [(4,)], 5: [(5,)], 0: [(9,)]})
    flags = np.zeros(10, bool)
    transitions = Transitions(
        np.arange(10, dtype=np.int32), np.arange(10, dtype=np.int32), ~flags, flags
    )
    data = DataDir(Path("x"), {"u": Utterance("u", "s", "r", start=1.0)})
    said = np.array([1, 2, 5, 3, 4], np.int32)
    path = LatticePath(
        np.array([9, 1, 2, 9, 5, 4], np.int32), said, np.arange(5, dtype=np.int32), 0.0, 0.0, 0.0
    )
    timed = Timer(words, transitions, aligner, data).timed("u", path, [0.9, 0.5, 1.0, 0.8, 0.7])
    assert aligner.unaligned == 0
    assert [(w.word, round(w.begin, 2), round(w.duration, 2), w.confidence) for w in timed] == [
        ("wonder", 1.01, 0.02, 0.5),
        ("it", 1.05, 0.01, 0.7),
    ]
    assert aligner.words(path, [Span(p, i, i + 1) for i, p in enumerate([9, 1, 2, 9, 5, 4])])[
        3
    ] == Span(3, 5, 5)


@given(st.lists(st.sampled_from(["▁", "▁a", "b", "▁c'", "▁<UNK>"]), max_size=8))
def test_groups_hold_every_piece_once(names: list[str]) -> None:
    places = joined.groups(names)
    assert list(itertools.chain(*places)) == list(range(len(names)))
    assert all(names[p[0]].startswith("▁") for p in places[1:])


def test_recall_of_some_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edits = [
        Edit("C", "zebra", "zebra"),
        Edit("S", "zebra", "the"),
        Edit("D", "quagga", None),
        Edit("S", "the", "zebra"),
        Edit("I", None, "a"),
        Edit("C", "other", "other"),
        Edit("C", None, None),
    ]
    folder = tmp_path / "score"
    folder.mkdir()
    sentences.write(folder / sentences.FILE, [Sentence("s", "a", edits)])
    (tmp_path / "words").write_text("Zebra\nquagga\n")
    out = tmp_path / "out.json"
    arguments = [str(folder), "--words", str(tmp_path / "words"), "--out", str(out)]
    assert main(["word-recall", *arguments]) == 0
    report = json.loads(out.read_text())
    assert (report["said"], report["recognised"], report["false_alarms"]) == (3, 1, 1)
    assert (report["others"], report["others_errors"], report["others_wer"]) == (2, 2, 100.0)
    assert "1 of 3 recognised" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (CONFIG.replace("lang: {units: graphemes}\n", ""), "pieces are spelled"),
        (CONFIG.replace("pieces: 24", "pieces: 0"), "lm.pieces is 0"),
        (CONFIG.replace("pieces: 24", "pieces: 24, arpa: x"), "on the corpus' text alone"),
    ],
)
def test_what_pieces_cannot_go_with(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], config: str, message: str
) -> None:
    (tmp_path / "config.yaml").write_text(config)
    arguments = [
        "pieces",
        "--config",
        str(tmp_path / "config.yaml"),
        "--text",
        str(folder / "text"),
    ]
    arguments += ["--dict", str(folder / "dict"), "--lang", str(folder / "lang")]
    assert main([*arguments, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err


def test_other_phones_are_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_lang(read_dictionary(folder / "dict"), Lang(), tmp_path / "lang")  # not spelled
    arguments = ["pieces", "--config", str(folder / "config.yaml"), "--text", str(folder / "text")]
    arguments += ["--dict", str(folder / "dict"), "--lang", str(tmp_path / "lang")]
    assert main([*arguments, "--out", str(tmp_path / "out")]) == 2
    assert "has other phones" in capsys.readouterr().err
