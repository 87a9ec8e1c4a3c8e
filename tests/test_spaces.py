"""White space that is not ASCII is part of a word, as for Kaldi, KenLM and NIST's tools: in all
that reads words. Data directories refuse it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hadpsgd.config.decoding import Scoring
from hadpsgd.corpus.lang.dictionary import read_pronunciations
from hadpsgd.corpus.lang.directory import read_symbols
from hadpsgd.corpus.tables import read_table
from hadpsgd.errors import UserError
from hadpsgd.lm import backoff
from hadpsgd.lm.vocabulary import Vocabulary
from hadpsgd.scoring.filters import Filters
from hadpsgd.scoring.formats import read_ctm
from hadpsgd.scoring.hypotheses import Words
from hadpsgd.scoring.network import parse
from hadpsgd.texts import sentences, words_of

SPACES = "\x1c\x85\xa0\u2003\u2028\u3000"
"""A separator of ASCII, a next line, a no-break space, an em space, a line separator, that of
Chinese."""
ARPA = "\\data\\\nngram 1=3\n\n\\1-grams:\n-1 <s>\n-1 </s>\n-1 {}\n\n\\end\\\n"


def of_file(read: Callable[[Path], list[str]], content: str) -> Callable[[str, Path], list[str]]:
    """What a reader finds in a file with a word."""

    def found(word: str, folder: Path) -> list[str]:
        path = folder / "file"
        path.write_text(content.format(word), encoding="utf-8", newline="\n")
        return read(path)

    return found


def of_lang(word: str, folder: Path) -> list[str]:
    (folder / "words.txt").write_text(f"<eps> 0\n{word} 1\n", encoding="utf-8")
    (folder / "oov.txt").write_text(f"{word}\n", encoding="utf-8")
    found = Vocabulary.of_lang(folder)
    return [*found.words, found.oov]


def of_decoding(word: str, folder: Path) -> list[str]:
    (folder / "words.txt").write_text(f"<eps> 0\n{word} 1\nb 2\n", encoding="utf-8")
    return Words.read(folder, Filters()).spoken([1, 2])


READERS: dict[str, tuple[Callable[[str, Path], list[str]], list[str]]] = {
    "text": (of_file(lambda p: [w for _, line in sentences(p) for w in line], "a {} b\n"),
             ["a", "W", "b"]),
    "symbols": (of_file(lambda p: [*read_symbols(p)], "{} 7\n"), ["W"]),
    "lexicon": (of_file(lambda p: [e.word for _, e in read_pronunciations(p)], "{} p q\n"), ["W"]),
    "lang": (of_lang, ["W", "W"]),
    "arpa": (of_file(lambda p: [w for w in backoff.load(p).ids if "s>" not in w], ARPA), ["W"]),
    "decoding": (of_decoding, ["W", "b"]),
    "ctm": (of_file(lambda p: [w.word for w in read_ctm(p)], "f 1 0.0 0.5 {}\n"), ["W"]),
    "filters": (lambda word, _: Filters.of(Scoring()).text(f"a {word} b").split(" "),
                ["a", "W", "b"]),
    "heard": (lambda word, _: Filters().heard(f"a {word} b"), ["a", "W", "b"]),
    "network": (lambda word, _: [w.text for w in parse(f"a {word} b").words[1:]], ["a", "W", "b"]),
    "alternation": (lambda word, _: [w.text for w in parse(f"{{ a / {word} }}").words[1:]],
                    ["a", "W"]),
}  # fmt: skip


@pytest.mark.parametrize("space", SPACES, ids=[f"U+{ord(space):04X}" for space in SPACES])
@pytest.mark.parametrize("name", READERS)
def test_it_is_part_of_a_word(name: str, space: str, tmp_path: Path) -> None:
    word = f"new{space}york"
    find, wanted = READERS[name]
    assert find(word, tmp_path) == [word if w == "W" else w for w in wanted]


@pytest.mark.parametrize("space", SPACES, ids=[f"U+{ord(space):04X}" for space in SPACES])
def test_data_directories_refuse_it(space: str, tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text(f"u a\nv new{space}york\n", encoding="utf-8", newline="\n")
    with pytest.raises(UserError, match=rf"text:2: white space U\+{ord(space):04X}"):
        read_table(path)


def test_words_of_a_line_are_those_between_ascii_space() -> None:
    """As the bytes say, of which Kaldi's programs know no more."""
    for line in ("", " a\tb \r\n", "a\vb\fc", *(f" x{s} {s}y\n" for s in SPACES)):
        assert words_of(line) == [word.decode() for word in line.encode().split()]
