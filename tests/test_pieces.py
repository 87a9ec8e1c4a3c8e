"""Pieces of spelled words: how they are trained, a text of new words, settings they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spelled_words import CONFIG, TEXT, prepared

from hadpsgd.cli import main
from hadpsgd.config.lang import Lang
from hadpsgd.corpus.lang import joined
from hadpsgd.corpus.lang.dictionary import read_dictionary
from hadpsgd.corpus.lang.directory import write_lang
from hadpsgd.corpus.lang.graphemes import graphemes, spelled
from hadpsgd.errors import UserError
from hadpsgd.lm.graphones import of_letters
from hadpsgd.lm.pieces import Pieces, whole, with_new_words


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("pieces"))


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
