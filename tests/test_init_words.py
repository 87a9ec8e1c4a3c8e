"""`hadpsgd init`: words, pronunciations, and words that train lacks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from corpus_data import make_data, write_lines
from init_data import corpus, init, said, spoil, table

from hadpsgd.setup.plain import plain


def test_a_lexicon_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, lexicon = table(tmp_path), tmp_path / "lexicon.txt"
    rows = ["TURN T ER N", "IT IH T", "ON AA N", "OFF AO F", "PLEASE P L IY Z"]
    write_lines(lexicon, rows)
    assert init(tmp_path, "--csv", str(path), "--lexicon", str(lexicon)) == 2
    assert "lacks 2 of train's" in capsys.readouterr().err  # two speakers' it's
    write_lines(lexicon, [*rows, "IT'S IH T S"])
    assert init(tmp_path, "--csv", str(path), "--lexicon", str(lexicon)) == 0
    config, section, out = corpus(tmp_path)
    assert section.case == "upper" and config.lang.units == "phones"
    assert set(said(out, "train").values()) <= {"TURN IT ON", "TURN IT OFF PLEASE", "IT'S ON ON"}
    assert init(tmp_path, "--csv", str(path), "--lexicon", "none.txt", "--force") == 2
    assert "none.txt: no such lexicon" in capsys.readouterr().err


def test_noises_of_a_table_are_those_of_kaldi_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(tmp_path)
    text = path.read_text().replace("on!", "on [Noise], <unk> <b>").replace(" off,", " off & 5+5,")
    path.write_text(text)
    (tmp_path / "more.txt").write_text("<s> Turn [noise] </s>\n")
    assert init(tmp_path, "--csv", str(path), "--lm-text", str(tmp_path / "more.txt")) == 0
    told = capsys.readouterr().out.splitlines()
    assert "signs that may be spoken are left out (&, +); write them as they are spoken" in told
    _, _, out = corpus(tmp_path)
    texts = {text for name in ("train", "dev", "test") for text in said(out, name).values()}
    assert texts == {"turn it on [Noise] <unk> <b>", "turn it off 5 5 please", "it's on on"}
    lexicon = (out / "dict" / "lexicon.txt").read_text().splitlines()
    assert {"[Noise] SPN", "<unk> SPN", "<b> SPN", "[noise] SPN"} < set(lexicon)
    assert (out / "lm" / "train.txt").read_text() == "turn [noise]\n"


def test_words_without_letters_have_no_lexicon_to_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The advice for a lexicon that lacks words, to spell them, would lead back here."""
    data = make_data(tmp_path / "k")
    text = (data / "text").read_text()
    (data / "text").write_text(text.replace("hello", "&").replace("hi", '"').replace("bye", "& b"))
    assert init(tmp_path, "--kaldi", str(data)) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert re.search(
        r"--lexicon letters: \d of train's \d words have no letters \(most often: &", told[0]
    )
    assert "Write them out as they are spoken, or remove them from text" in told[0]
    assert "take --lexicon" not in told[0]


def test_english_pronunciations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path)
    assert init(tmp_path, "--csv", str(path), "--lexicon", "english") == 0
    _, _, out = corpus(tmp_path)
    lexicon = (out / "dict" / "lexicon.txt").read_text().splitlines()
    assert {"turn T ER N", "please P L IY Z"} < set(lexicon)
    spoil(path, 4, '"my takes/Cleo take 02.wav",\u65e5\u672c,Cleo')  # of train
    assert init(tmp_path, "--csv", str(path), "--lexicon", "english", "--force") == 2
    told = capsys.readouterr().err
    assert "'\u65e5\u672c' has no English pronunciation (it is not in Latin letters)" in told


def test_english_pronunciations_of_words_in_capitals(tmp_path: Path) -> None:
    """They are no abbreviations, which espeak-ng spells out."""
    data = make_data(tmp_path / "k")
    write_lines(data / "text", [f"{name} LET US DO IT" for name in said(tmp_path / "k", "train")])
    assert init(tmp_path, "--kaldi", str(data), "--lexicon", "english") == 0
    lexicon = (tmp_path / "data" / "dict" / "lexicon.txt").read_text().splitlines()
    assert {"US AH S", "IT IH T", "LET L EH T"} < set(lexicon)
    assert not {"US Y UW EH S", "IT AY T IY"} & set(lexicon)


def test_words_that_train_lacks_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They cannot be recognised, so they are not in the lexicon made here, but in --lm-text's."""
    path = table(tmp_path)
    head, *rows = path.read_text().splitlines()
    sets = ["test", "dev", *["train"] * 10]
    rows[0] = "my takes/Ann take 00.wav,turn everything on,Ann"
    write_lines(path, [f"{head},set", *(f"{r},{s}" for r, s in zip(rows, sets, strict=True))])
    assert init(tmp_path, "--csv", str(path)) == 0
    told = capsys.readouterr().out
    assert "test: 1 of 3 words (33.3 %) have no pronunciation and cannot be recognised: " in told
    assert "recognised: everything; more text" in told and "dev: 0 of" not in told
    config, section, _ = corpus(tmp_path)
    assert section.max_oov.of("test") == 0.34 and section.max_oov.of("dev") == 0.05
    assert config.decoding.max_failed.of("test") == 1.0  # its one utterance
    write_lines(tmp_path / "more.txt", ["Everything, please!"])
    more = ("--lm-text", str(tmp_path / "more.txt"), "--force")
    assert init(tmp_path, "--csv", str(path), *more) == 0
    _, section, out = corpus(tmp_path)
    assert section.max_oov.of("test") == 0.05
    assert (out / "lm" / "train.txt").read_text() == "everything please\n"


def test_few_words_that_train_lacks_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fewer than max_oov allows, too; ten of them, the most frequent first."""
    path = table(tmp_path)
    head, *rows = path.read_text().splitlines()
    sets = ["test", "dev", *["train"] * 10]
    known, new = "turn it on " * 100, " ".join(f"w{chr(97 + i)}" for i in range(11))
    rows[0] = f"my takes/Ann take 00.wav,{known}{new} wk,Ann"
    rows[1] = f"my takes/Bob take 01.wav,{'off ' * 99},Bob"
    write_lines(path, [f"{head},set", *(f"{r},{s}" for r, s in zip(rows, sets, strict=True))])
    assert init(tmp_path, "--csv", str(path)) == 0
    told = capsys.readouterr().out
    assert "test: 12 of 312 words (3.8 %) have no pronunciation and cannot" in told
    assert ": wk, wa, wb, wc, wd, we, wf, wg, wh, wi, ...; more text" in told
    assert "dev: only 99 words to choose weight and penalty by: give it more, 100 at least" in told
    _, section, _ = corpus(tmp_path)
    assert section.max_oov.of("test") == 0.05
    write_lines(path, path.read_text().replace("off off", "off off off", 1).splitlines())
    assert init(tmp_path, "--csv", str(path), "--force") == 0
    assert "dev: only" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "text, words",
    [
        ("Don\u2019t -- stop!", ["don't", "stop"]),
        ("'Quoted' x-ray\u2026 42%", ["quoted", "x-ray", "42"]),
        ("\u00c7a va, N\u0303O?", ["\u00e7a", "va", "\u00f1o"]),
        ("?!", []),
        ("'CAUSE of 'em, rock 'em!", ["'cause", "of", "'em", "rock", "'em"]),
        ("The dogs\u2019 house", ["the", "dogs'", "house"]),
        ("It`s o\u00b4clock, isn\u2032t it", ["it's", "o'clock", "isn't", "it"]),
        ("the girls' and 'em", ["the", "girls'", "and", "'em"]),  # the first cannot open
        ("She: 'so he said,' and", ["she", "so", "he", "said", "and"]),
        ("`So,' ``he'' said", ["so", "he", "said"]),
        ("\u201aso sagte er\u2018", ["so", "sagte", "er"]),
        ("'Cause the dogs' house", ["cause", "the", "dogs", "house"]),  # cannot be told apart
        ("5' 11'' or '90s", ["5", "11", "or", "'90s"]),
        ("[NOISE] so, <laugh>. [um]!", ["[NOISE]", "so", "<laugh>", "[um]"]),
        ("<b>bold</b> [...] [two words]", ["b", "bold", "b", "two", "words"]),
    ],
)
def test_words_of_a_text(text: str, words: list[str]) -> None:
    assert [*plain(text).words] == words


def test_apostrophes_at_edges_are_counted_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table's words are those of Kaldi's data, unless they may be quoted."""
    path = table(tmp_path)
    text = path.read_text().replace("Turn it on!", "'Cause it's the dogs\u2019 'on'")
    path.write_text(text.replace("off,", "'em, 'em off"))
    (tmp_path / "more.txt").write_text("Rock 'em\n")
    assert init(tmp_path, "--csv", str(path), "--lm-text", str(tmp_path / "more.txt")) == 0
    told = capsys.readouterr().out.splitlines()
    assert "9 words with an apostrophe at an edge, which is kept: 'em" in told
    line = next(line for line in told if "quotation mark" in line)
    assert line.startswith("12 words without the apostrophe at an edge, which may be a quotation ")
    assert ": 'cause, 'on', dogs'; write quotations between" in line
    _, _, out = corpus(tmp_path)
    texts = {text for name in ("train", "dev", "test") for text in said(out, name).values()}
    assert texts == {"cause it's the dogs on", "turn it 'em 'em off please", "it's on on"}
    assert "'em e m" in (out / "dict" / "lexicon.txt").read_text().splitlines()
