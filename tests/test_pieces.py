"""An open vocabulary: spelled words, pieces of words, and words put together again."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import kaldifst
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hadpsgd.cli import main
from hadpsgd.config.decoding import Graph
from hadpsgd.config.lang import Lang
from hadpsgd.corpus.datadir import DataDir, Utterance
from hadpsgd.corpus.lang import joined
from hadpsgd.corpus.lang.dictionary import read_dictionary
from hadpsgd.corpus.lang.directory import read_symbols, write_lang
from hadpsgd.corpus.lang.graphemes import graphemes, spelled
from hadpsgd.decoding.lattice import Path as LatticePath
from hadpsgd.decoding.word_times import Span, WordAligner
from hadpsgd.errors import UserError
from hadpsgd.graph.command import of_arpa, with_spelling_of
from hadpsgd.graph.compile import compose_lg, read_fst
from hadpsgd.graph.transitions import Transitions
from hadpsgd.lm.graphones import of_letters
from hadpsgd.lm.pieces import Pieces, whole, with_new_words
from hadpsgd.scoring import sentences
from hadpsgd.scoring.align import Edit
from hadpsgd.scoring.filters import Filters
from hadpsgd.scoring.hypotheses import Timer, Words
from hadpsgd.scoring.nist import Sentence
from hadpsgd.scoring.tune import Setting

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
    letters = (folder / "pieces/graphones.txt").read_text().split()
    graphones = [graphone for letter in letters for graphone in of_letters(letter)]
    return Pieces((folder / "pieces/pieces.model").read_bytes(), graphones)


@given(st.lists(st.text("adefhilnorstuw'", min_size=1, max_size=9), max_size=6))
def test_words_come_back(pieces: Pieces, words: list[str]) -> None:
    """Any words of the lexicon's letters, apostrophes too, spelled or whole."""
    spelled = [["\u2581", *pieces.of(of_letters(word)), "</w>"] for word in words]
    lines = [[whole(word)] if i % 2 else spelled[i] for i, word in enumerate(words)]
    names = [name for line in lines for name in line]
    assert words == [joined.joined([names[i] for i in place]) for place in joined.groups(names)]


def test_every_letter_is_a_piece(pieces: Pieces) -> None:
    letters = {sign for line in TEXT for sign in line} - {" "}
    words = sorted({word for line in TEXT for word in line.split()})
    lines = list(pieces.spellings([of_letters(word) for word in words]))
    names = {piece.name for piece in pieces.pieces}
    assert letters <= {name for line in lines for name in line} <= names
    assert ["".join(line) for line in lines[: len(words)]] == words
    assert {"".join(line) for line in lines} == set(words)
    assert not any("\u2581" in name for name in names)


def test_every_word_is_new_once(folder: Path) -> None:
    text = [line.split() for line in [*TEXT, "<UNK> rest", "the the wonder"]]
    lines = list(with_new_words(text, {"<UNK>"}))
    assert lines[: len(text)] == [[whole(word) for word in words] for words in text]
    new = []
    for line in lines[len(text) :]:
        [place] = [i for i, name in enumerate(line) if name == "\u2581"]
        fits = [w for w in text if len(w) == len(line) and _same_but(place, line, w)]
        new.append({words[place] for words in fits})
    every = {word for words in text for word in words} - {"<UNK>"}
    assert len(new) == len(every) and set().union(*new) == every
    written = (folder / "pieces/train.txt").read_text().splitlines()
    said = [line.split() for line in (folder / "text").read_text().splitlines()]
    assert written == [" ".join(line) for line in with_new_words(said, {"<UNK>", "!SIL"})]


def _same_but(place: int, line: list[str], words: list[str]) -> bool:
    names = [whole(word) for word in words]
    return [*names[:place], *names[place + 1 :]] == [*line[:place], *line[place + 1 :]]


def test_the_same_words_give_the_same_pieces(pieces: Pieces) -> None:
    words = [of_letters(word) for word in sorted({w for line in TEXT for w in line.split()})]
    again, backwards = Pieces.train(words, 24), Pieces.train(reversed(words), 24)
    assert again.model == backwards.model == pieces.model
    assert again.graphones == pieces.graphones
    with pytest.raises(UserError, match=r"lm\.pieces: sentencepiece fails"):
        Pieces.train([], 24)
    few = Pieces.train(words, 1)
    assert {piece.name for piece in few.pieces} == {sign for line in TEXT for sign in line} - {" "}


def accepted(folder: Path, phones: list[str]) -> set[str]:
    """The words, known or spelled, that L gives for phones."""
    numbers = read_symbols(folder / "phones.txt")
    words = read_symbols(folder / "words.txt")
    names = {number: name for name, number in words.items()}
    lexicon = kaldifst.StdVectorFst.read(str(folder / "L.fst"))
    kaldifst.arcsort(lexicon, "ilabel")
    spoken = kaldifst.compose(in_a_row([numbers[p] for p in phones], []), lexicon)
    kaldifst.arcsort(spoken, "olabel")
    paths = kaldifst.compose(spoken, well_spelled(words))
    found: set[str] = set()

    def walk(state: int, said: tuple[str, ...]) -> None:
        if paths.final(state).value < np.inf:
            found.add(" ".join(joined.joined([said[i] for i in g]) for g in joined.groups(said)))
        for arc in kaldifst.ArcIterator(paths, state):
            walk(arc.nextstate, said + ((names[arc.olabel],) if arc.olabel else ()))

    if paths.num_states:
        walk(paths.start, ())
    return found


def well_spelled(words: dict[str, int]) -> kaldifst.StdVectorFst:
    """An acceptor of known words and of words spelled by pieces that have letters."""
    marks = {"\u2581": (0, 1), "</w>": (2, 0)}
    arcs = []
    for name, number in words.items():
        if name in marks:
            arcs.append((*marks[name], number))
        elif name.startswith("\u2581"):
            arcs.append((0, 0, number))
        elif graphemes(name) and name[0] not in "<#":
            arcs += [(1, 2, number), (2, 2, number)]
    lines = [f"{a} {b} {number} {number}" for a, b, number in sorted(arcs)]
    fst = kaldifst.compile("\n".join([*lines, "0 0"]) + "\n")
    kaldifst.arcsort(fst, "ilabel")
    return fst


def test_silence_is_between_words_alone(folder: Path) -> None:
    lang = folder / "pieces/lang"
    assert "wonst" in accepted(lang, list("wonst"))  # in no text
    spoken = accepted(lang, ["SIL", *"it", "SIL", *"is", "SIL"])
    assert "it is" in spoken and "itis" not in spoken
    twice = accepted(lang, [*"it", "SIL", "SIL", *"is"])
    assert "it !SIL is" in twice and "it is" not in twice  # one of them is the word of silence
    assert {"it is", "itis"} <= accepted(lang, list("itis"))


def test_the_graph_spells_words_outside_the_list(folder: Path, tmp_path: Path) -> None:
    """LG with pieces passes the letters of an unseen word; that of known words does not."""
    out = {}
    for name, lang, text in (
        ("words", folder / "lang", folder / "text"),
        ("pieces", folder / "pieces/lang", folder / "pieces/train.txt"),
    ):
        arguments = ["lm", "--config", str(folder / "config.yaml"), "--lang", str(lang)]
        assert main([*arguments, "--text", str(text), "--out", str(tmp_path / name)]) == 0
        grammar = of_arpa(arpa=tmp_path / name / "full.arpa.gz", words=lang / "words.txt")
        if name == "pieces":
            spelling = folder / "pieces/spelling.arpa.gz"
            grammar = with_spelling_of(
                grammar, arpa=spelling, words=lang / "words.txt", settings=Graph()
            )
        lg = compose_lg(read_fst(lang / "L_disambig.fst"), grammar)
        numbers = read_symbols(lang / "phones.txt")
        marks = [numbers[n] for n in numbers if n.startswith("#")]
        letters = [numbers[letter] for letter in "listen"]
        out[name] = kaldifst.compose(in_a_row(letters, marks), lg).num_states
    assert out["words"] == 0 and out["pieces"] > 0


def in_a_row(labels: list[int], anywhere: list[int]) -> kaldifst.StdVectorFst:
    """An acceptor of labels, with loops of what may stand anywhere."""
    arcs = [(i, i + 1, label) for i, label in enumerate(labels)]
    arcs += [(i, i, label) for i in range(len(labels) + 1) for label in anywhere]
    lines = [f"{i} {j} {label} {label}" for i, j, label in sorted(arcs)]
    fst = kaldifst.compile("\n".join([*lines, f"{len(labels)} 0"]) + "\n")
    kaldifst.arcsort(fst, "olabel")
    return fst


WORDS = """\\data\\
ngram 1=5
ngram 2=4

\\1-grams:
-1\t</s>
-99\t<s>\t-3
-1\t\u2581a\t-3
-1\t\u2581b\t-3
-1.5\t\u2581\t-3

\\2-grams:
-0.3\t<s> \u2581a
-0.7\t\u2581a \u2581
-0.2\t\u2581 \u2581b
-0.4\t\u2581b </s>

\\end\\
"""
LETTERS = """\\data\\
ngram 1=4
ngram 2=3

\\1-grams:
-1\t</s>
-99\t<s>\t-0.5
-2\tx\t-0.25
-2\ty\t-0.5

\\2-grams:
-0.6\t<s> x
-0.8\tx y
-0.9\ty </s>

\\end\\
"""


@pytest.mark.parametrize(
    ("said", "words", "letters"),
    [
        ("\u2581a \u2581 x y </w> \u2581b", 0.3 + 0.7 + 0.2 + 0.4, 0.6 + 0.8 + 0.9),
        ("\u2581a \u2581 y </w> \u2581b", 0.3 + 0.7 + 0.2 + 0.4, 0.5 + 2 + 0.9),
        # by backing off, in the words and in the letters
        ("\u2581 x </w> \u2581a", 3 + 1.5 + 3 + 1 + 3 + 1, 0.6 + 0.25 + 1),
        ("\u2581a \u2581b", 0.3 + 3 + 1 + 0.4, None),
    ],
)
def test_costs_of_a_spelled_word(
    tmp_path: Path, said: str, words: float, letters: float | None
) -> None:
    """Those of both models, as the ARPA files say by hand; after the word, its history alone."""
    names = ["<eps>", "\u2581a", "\u2581b", "\u2581", "x", "y", "</w>", "#0", "<s>", "</s>"]
    (tmp_path / "words.txt").write_text("".join(f"{n} {i}\n" for i, n in enumerate(names)))
    (tmp_path / "words.arpa").write_text(WORDS)
    (tmp_path / "letters.arpa").write_text(LETTERS)
    table = tmp_path / "words.txt"
    chosen = Graph(spelled_cost=-0.5, spelling_scale=0.5)
    grammar = with_spelling_of(
        of_arpa(arpa=tmp_path / "words.arpa", words=table),
        arpa=tmp_path / "letters.arpa",
        words=table,
        settings=chosen,
    )
    labels = [names.index(name) for name in said.split()]
    paths = kaldifst.compose(in_a_row(labels, [names.index("#0")]), grammar)
    *_, cost = kaldifst.get_linear_symbol_sequence(kaldifst.shortest_path(paths))
    wanted = np.log(10.0) * (words + 0.5 * (letters or 0.0)) - (0.5 if letters else 0.0)
    assert float(getattr(cost, "value", cost)) == pytest.approx(wanted, abs=1e-4)


def test_a_lang_folder_without_pieces_is_refused(folder: Path) -> None:
    words = folder / "lang/words.txt"
    with pytest.raises(UserError, match="no words are spelled here"):
        with_spelling_of(kaldifst.StdVectorFst(), arpa=Path("x"), words=words, settings=Graph())


def test_a_model_without_new_words_is_refused(folder: Path, tmp_path: Path) -> None:
    arpa = tmp_path / "words.arpa"
    lines = WORDS.replace("-1.5\t\u2581\t-3\n", "").replace("ngram 1=5", "ngram 1=4")
    lines = lines.replace("-0.7\t\u2581a \u2581\n-0.2\t\u2581 \u2581b\n", "").replace("2=4", "2=2")
    arpa.write_text(lines.replace("\u2581a", "\u2581rest").replace("\u2581b", "\u2581it"))
    words = folder / "pieces/lang/words.txt"
    with pytest.raises(UserError, match="expects no new words"):
        spelling = folder / "pieces/spelling.arpa.gz"
        with_spelling_of(
            of_arpa(arpa=arpa, words=words), arpa=spelling, words=words, settings=Graph()
        )


def test_timed_words_of_pieces() -> None:
    names = {1: "▁won", 2: "der", 3: "▁", 4: "it", 5: "▁<UNK>", 6: "</w>"}
    words = Words(names, Filters(frozenset({"<unk>"})), pieces=True)
    aligner = WordAligner({1: [(1,)], 2: [(2,)], 3: [()], 4: [(4,)], 5: [(5,)], 0: [(9,)]})
    flags = np.zeros(10, bool)
    transitions = Transitions(
        np.arange(10, dtype=np.int32), np.arange(10, dtype=np.int32), ~flags, flags
    )
    data = DataDir(Path("x"), {"u": Utterance(id="u", speaker="s", recording="r", start=1.0)})
    said = np.array([1, 2, 5, 3, 4], np.int32)
    path = LatticePath(
        transitions=np.array([9, 1, 2, 9, 5, 4], np.int32),
        words=said,
        word_frames=np.arange(5, dtype=np.int32),
        cost=0.0,
        graph=0.0,
        acoustic=0.0,
    )
    timed = Timer(words, transitions, aligner, data).timed("u", path, [0.9, 0.5, 1.0, 0.8, 0.7])
    assert words.inside == {2, 4, 6}  # no penalty for them
    assert Setting(lm_weight=10.0, word_penalty=0.5).scaling(words).begin(said).tolist() == [
        1,
        0,
        1,
        1,
        0,
    ]
    assert aligner.unaligned == 0
    assert [(w.word, round(w.begin, 2), round(w.duration, 2), w.confidence) for w in timed] == [
        ("wonder", 1.01, 0.02, 0.5),
        ("it", 1.05, 0.01, 0.7),
    ]
    assert aligner.words(
        path, [Span(label=p, begin=i, end=i + 1) for i, p in enumerate([9, 1, 2, 9, 5, 4])]
    )[3] == Span(label=3, begin=5, end=5)


@given(st.lists(st.sampled_from(["▁", "▁a", "b", "▁c'", "▁<UNK>"]), max_size=8))
def test_groups_hold_every_piece_once(names: list[str]) -> None:
    places = joined.groups(names)
    assert list(itertools.chain(*places)) == list(range(len(names)))
    assert all(names[p[0]].startswith("▁") for p in places[1:])


def test_recall_of_some_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edits = [
        Edit(kind="C", ref="zebra", hyp="zebra"),
        Edit(kind="S", ref="zebra", hyp="the"),
        Edit(kind="D", ref="quagga", hyp=None),
        Edit(kind="S", ref="the", hyp="zebra"),
        Edit(kind="I", ref=None, hyp="a"),
        Edit(kind="C", ref="other", hyp="other"),
        Edit(kind="C", ref=None, hyp=None),
    ]
    folder = tmp_path / "score"
    folder.mkdir()
    sentences.write(folder / sentences.FILE, [Sentence(name="s", speaker="a", edits=edits)])
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
        (
            CONFIG.replace("graphemes}", "graphemes, position_dependent: true}"),
            "begin, go on or end",
        ),
        (CONFIG.replace("pieces: 24", "pieces: 0"), "lm.pieces is 0"),
        (
            CONFIG.replace("order: 3, pieces: 24", "pieces: 24, arpa: x"),
            "on the corpus' text alone",
        ),
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
