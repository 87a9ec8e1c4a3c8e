"""Spelled words in the graph: which phones make them, and what they cost."""

from __future__ import annotations

from pathlib import Path

import kaldifst
import numpy as np
import pytest
from spelled_words import prepared

from hadpsgd.cli import main
from hadpsgd.config.decoding import Graph
from hadpsgd.corpus.lang import joined
from hadpsgd.corpus.lang.directory import read_symbols
from hadpsgd.corpus.lang.graphemes import graphemes
from hadpsgd.errors import UserError
from hadpsgd.graph.command import of_arpa, with_spelling_of
from hadpsgd.graph.compile import compose_lg, read_fst


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("pieces"))


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
