"""Letters and phones of words, aligned; new words spelled by what they sound like."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import kaldifst
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hadpsgd.cli import main
from hadpsgd.config.decoding import Graph
from hadpsgd.corpus.lang import joined as names
from hadpsgd.corpus.lang.directory import read_symbols
from hadpsgd.decoding.said import Vocabulary
from hadpsgd.graph.command import of_arpa, with_spelling_of
from hadpsgd.graph.compile import compose_lg, read_fst
from hadpsgd.lm.graphones import SHAPES, Graphone, _reachable, _Shape, align, joined, of_letters

LEXICON = {
    "ship": "SH IH P",
    "shop": "SH AA P",
    "hip": "HH IH P",
    "hop": "HH AA P",
    "sip": "S IH P",
    "sin": "S IH N",
    "thin": "TH IH N",
    "tin": "T IH N",
    "ten": "T EH N",
    "then": "DH EH N",
    "hen": "HH EH N",
    "tax": "T AE K S",
    "hat": "HH AE T",
    "sat": "S AE T",
    "pat": "P AE T",
    "path": "P AE TH",
}


def segmentations(
    word: str, phones: tuple[str, ...]
) -> Iterator[tuple[tuple[str, tuple[str, ...]], ...]]:
    """All ways to cut both into units."""
    if not word and not phones:
        yield ()
    for a, b in SHAPES:
        if a <= len(word) and b <= len(phones):
            for rest in segmentations(word[a:], phones[b:]):
                yield ((word[:a], phones[:b]), *rest)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 1000), st.integers(1, 3))
def test_counts_and_best_path_are_those_of_all_segmentations(
    letters: int, phones: int, seed: int, entries: int
) -> None:
    assume(_reachable(letters, phones))
    source = np.random.default_rng(seed)

    def text(signs: str, length: int) -> str:
        return "".join(source.choice(list(signs), length))

    lexicon = [(text("ab", letters), tuple(text("XY", phones))) for _ in range(entries)]
    graphones: dict[Graphone, int] = {}
    shape = _Shape(lexicon, graphones)
    scores = source.uniform(0.1, 1, len(graphones))
    counts = np.zeros(len(graphones))
    shape.expect(scores, counts)
    wanted: dict[Graphone, float] = defaultdict(float)
    for entry, path in zip(lexicon, shape.best(scores), strict=True):
        ways = [tuple(Graphone(*unit) for unit in way) for way in segmentations(*entry)]
        weights = [float(np.prod([scores[graphones[g]] for g in way])) for way in ways]
        for way, weight in zip(ways, weights, strict=True):
            for graphone in way:
                wanted[graphone] += weight / sum(weights)
        chosen = float(np.prod(scores[path]))
        assert chosen == pytest.approx(max(weights))
        assert joined(list(graphones)[number] for number in path) == Graphone(*entry)
    np.testing.assert_allclose(counts, [wanted[g] for g in graphones], rtol=1e-9)


def test_english_letters_find_their_phones() -> None:
    aligned = align((word, tuple(phones.split())) for word, phones in LEXICON.items())
    units = {word: [(g.letters, *g.phones) for g in way] for (word, _), way in aligned.items()}
    assert units["ship"] == [("sh", "SH"), ("i", "IH"), ("p", "P")]
    assert units["path"] == [("p", "P"), ("a", "AE"), ("th", "TH")]
    assert units["tax"] == [("t", "T"), ("a", "AE"), ("x", "K", "S")]
    assert units["hip"] == [("h", "HH"), ("i", "IH"), ("p", "P")]


def test_what_no_units_can_hold_is_left_out() -> None:
    odd = [("w", ("D", "AH", "B", "AX", "L", "Y", "UW")), ("abcdefghij", ("A", "B"))]
    fits = [("ab", ("A", "B")), ("queue", ("K", "Y", "UW"))]
    assert set(align([*odd, *fits])) == set(fits)


def test_names() -> None:
    assert Graphone("sh", ("SH",)).name == "sh\u2582SH"
    assert Graphone("x", ("K", "S")).name == "x\u2582K\u2582S"
    assert [g.name for g in of_letters("won't")] == list("won't")
    spelled = ["\u2581", "sh\u2582SH", "e\u2582IY", "</w>"]
    assert names.joined(spelled) == "she"
    labels = {name: i for i, name in enumerate([*spelled, "e\u2582EH", "\u2581she", "s", "he"], 1)}
    said = Vocabulary(labels, True).said(["she"])
    assert {label for _, _, label in said.arcs} == set(labels.values())


def prepare(folder: Path, lexicon: dict[str, str]) -> list[str]:
    """A config, a dictionary, a text and a lang folder; the arguments of `hadpsgd pieces`."""
    lines = ["<UNK> SPN", "!SIL SIL", *(f"{w} {phones}" for w, phones in lexicon.items())]
    phones = sorted({phone for line in lines[2:] for phone in line.split()[1:]})
    for name, text in {
        "config.yaml": "name: t\ncorpus: {kind: builtin}\nlm: {order: 3, pieces: 40}\n",
        "text": "".join(f"the {w}\n" for w in lexicon),
        "dict/lexicon.txt": "".join(f"{line}\n" for line in [*lines, "the DH AX"]),
        "dict/silence_phones.txt": "SIL\nSPN\n",
        "dict/nonsilence_phones.txt": "".join(f"{phone}\n" for phone in [*phones, "AX"]),
        "dict/optional_silence.txt": "SIL\n",
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    common = ["--config", str(folder / "config.yaml"), "--dict", str(folder / "dict")]
    assert main(["lang", *common, "--out", str(folder / "lang")]) == 0
    common += ["--text", str(folder / "text"), "--lang", str(folder / "lang")]
    return ["pieces", *common, "--out", str(folder / "pieces")]


def test_words_that_do_not_fit_their_phones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A few are left out by name; too many stop the stage."""
    odd = {"w": "TH AE P S IH N"}
    arguments = prepare(tmp_path, LEXICON | {f"{w}s": f"{p} S" for w, p in LEXICON.items()} | odd)
    assert main(arguments) == 0
    assert "1 of 34 pronunciations do not fit their letters: w" in capsys.readouterr().err
    arguments = prepare(tmp_path, LEXICON | odd)
    assert main(arguments) == 2
    assert "1 of 18 pronunciations do not fit their letters: w" in capsys.readouterr().err


def test_a_graph_of_phones_spells_an_unseen_word(tmp_path: Path) -> None:
    """The phones of a word that no text has come out in its letters, and known ones stay whole."""
    assert main(prepare(tmp_path, LEXICON)) == 0
    lang = tmp_path / "pieces/lang"
    arguments = ["--text", str(tmp_path / "pieces/train.txt"), "--lang", str(lang)]
    config = ["--config", str(tmp_path / "config.yaml")]
    assert main(["lm", *config, *arguments, "--out", str(tmp_path / "lm")]) == 0
    words = lang / "words.txt"
    grammar = with_spelling_of(
        of_arpa(arpa=tmp_path / "lm/full.arpa.gz", words=words),
        arpa=tmp_path / "pieces/spelling.arpa.gz",
        words=words,
        settings=Graph(),
    )
    lg = compose_lg(read_fst(lang / "L_disambig.fst"), grammar)
    assert best(lg, lang, "DH AX SH IH N") == "the shin"
    assert best(lg, lang, "DH AX T IH N") == "the tin"


def best(lg: kaldifst.StdVectorFst, lang: Path, phones: str) -> str:
    """The words of the cheapest path for phones."""
    numbers = read_symbols(lang / "phones.txt")
    marks = [number for name, number in numbers.items() if name.startswith("#")]
    labels = [numbers[phone] for phone in phones.split()]
    arcs = [f"{i} {i + 1} {label} {label}" for i, label in enumerate(labels)]
    arcs += [f"{i} {i} {mark} {mark}" for i in range(len(labels) + 1) for mark in marks]
    arcs.sort(key=lambda arc: int(arc.split()[0]))
    spoken = kaldifst.compile("\n".join([*arcs, f"{len(labels)} 0"]) + "\n")
    kaldifst.arcsort(spoken, "olabel")
    path = kaldifst.shortest_path(kaldifst.compose(spoken, lg))
    _, _, said, _ = kaldifst.get_linear_symbol_sequence(path)
    of = {number: name for name, number in read_symbols(lang / "words.txt").items()}
    pieces = [of[number] for number in said]
    return " ".join(names.joined([pieces[i] for i in place]) for place in names.groups(pieces))
