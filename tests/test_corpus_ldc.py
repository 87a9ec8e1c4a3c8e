"""`corpus.kind: ldc`: from the LDC's folders to data directories, on miniature ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from corpus_data import replace_line, tone, write_lines
from hypothesis import given
from hypothesis import strategies as st
from miniature_ldc import SECONDS, Ldc, write_sphere

from hadpsgd.cli import main
from hadpsgd.corpus.datadir import AudioReader, DataDir
from hadpsgd.corpus.dictdir import read_lexicon
from hadpsgd.corpus.ldc.words import mapped, switchboard_words
from hadpsgd.scoring.filters import Filters


@pytest.fixture
def ldc(tmp_path: Path) -> Ldc:
    return Ldc(tmp_path / "ldc").make()


def prepare(ldc: Ldc, *more: str, **corpus: object) -> int:
    folder = ldc.root.parent
    config = ldc.config(folder / "c.yaml", **corpus)
    return main(["corpus", "--config", str(config), "--out", str(folder / "out"), *more])


def texts(ldc: Ldc, name: str) -> dict[str, str]:
    data = DataDir.read(ldc.root.parent / "out/data" / name)
    return {u.id: u.text for u in data}


def test_sets_as_the_recipe_of_kaldi_makes_them(ldc: Ldc) -> None:
    assert prepare(ldc) == 0
    assert texts(ldc, "dev") == {
        "sw02001-A_000100-000198": "hi bob it's -n them",
        "sw02001-A_000200-000298": "[noise] i buy i._b._m.'s snacks",
    }
    assert texts(ldc, "train") == {
        "sw02001-A_000300-000398": "uh-huh",
        "sw02001-A_000400-000498": "bye",
        "sw02001-A_000500-000598": "[laughter]",
        "sw02001-B_000100-000198": "uh-huh",
        "sw02001-B_000200-000298": "hi ab- i. b. m.",
        "sw02001-B_000300-000398": "uh-huh",
        "sw02001-B_000400-000498": "[vocalized-noise]",
        "sw02005-A_000000-000098": "uh-huh",
        "sw02005-A_000100-000198": "bob is i",
        "sw02005-B_000000-000098": "hi ann",
        "sw02005-B_000100-000198": "a bye",
        "sw02005-B_000200-000298": "uh-huh",
    }
    assert texts(ldc, "swb") == {
        "sw_4390-A_000050-000150": "hi bob",
        "sw_4390-A_000160-000250": "(%hesitation) i b m",
        "sw_4390-B_000100-000250": "bye ( ann )",
    }
    assert texts(ldc, "ch") == {
        "en_4156-A_000005-000200": "uh-huh",
        "en_4156-B_000450-000595": "bye",
    }
    out = ldc.root.parent / "out"
    said = (out / "lm/train.txt").read_text().splitlines()
    assert len(said) == 12 and "hi bob it's -n them" not in said


def test_segments_and_channels(ldc: Ldc) -> None:
    """Extended by 0.1 s, or by half of the silence between two; A is the first channel."""
    assert prepare(ldc) == 0
    out = ldc.root.parent / "out"
    data = DataDir.read(out / "data/swb")
    spans = {u.id: (u.start, u.end) for u in data}
    assert spans == {
        "sw_4390-A_000050-000150": (0.4, 1.55),
        "sw_4390-A_000160-000250": (1.55, 2.6),
        "sw_4390-B_000100-000250": (0.9, 2.6),
    }
    assert {u.start for u in DataDir.read(out / "data/ch")} == {0.0, 4.4}
    with AudioReader(data, 8000) as reader:
        heard = {u.recording[-1]: reader.read(u) for u in data}
    for side, hertz in (("A", 440), ("B", 880)):
        spectrum = np.abs(np.fft.rfft(heard[side]))
        assert abs(spectrum.argmax() * 8000 / len(heard[side]) - hertz) < 2


def test_stm_and_glm_are_those_of_the_part(ldc: Ldc) -> None:
    assert prepare(ldc) == 0
    folder = ldc.root.parent / "out/data/ch"
    lines = (folder / "stm").read_text().splitlines()
    assert lines[0].startswith(";;") and len(lines) == 4
    assert all(line.startswith("en_") for line in lines[1:])
    assert "ASIDE" not in (folder / "stm").read_text()
    assert "BYE ( ANN )" in (folder.parent / "swb/stm").read_text()
    assert (folder / "glm").is_file()


def test_the_dictionary(ldc: Ldc) -> None:
    assert prepare(ldc) == 0
    out = ldc.root.parent / "out"
    words = read_lexicon(out / "dict/lexicon.txt").words
    assert words["i._b._m.'s"] == [("ay", "b", "iy", "eh", "m", "z")]
    assert words["them"] == [("dh", "ah", "m"), ("eh", "m")]
    assert words["<unk>"] == [("spn",)] and words["i"] == [("ay",)] and words["w."]
    assert {"-n", "ab-", "snacks", "[laughter]"} <= words.keys()
    assert main(["lang", "--config", str(out.parent / "c.yaml"), "--dict", str(out / "dict"),
                 "--out", str(out / "lang")]) == 0  # fmt: skip


def test_repeats_are_kept_so_many_times(ldc: Ldc) -> None:
    assert prepare(ldc, max_repeats=2) == 0
    assert [*texts(ldc, "train").values()].count("uh-huh") == 2
    assert (ldc.root.parent / "out/lm/train.txt").read_text().count("uh-huh") == 5


def test_fisher_is_trained_on_too(ldc: Ldc, capsys: pytest.CaptureFixture[str]) -> None:
    assert prepare(ldc, fisher=ldc.fisher_folders) == 0
    said = {name: text for name, text in texts(ldc, "train").items() if name.startswith("fe_")}
    one = {
        "fe_03_00001-A-000050-000150": "hi [laughter] bob",
        "fe_03_00001-A-000409-000500": "uh-huh",
        "fe_03_00001-B-000120-000200": "i._b._m. [noise] uh-huh",
    }
    assert said == {**one, **{k.replace("00001", "05852"): text for k, text in one.items()}}
    assert "skipped: 4 of 10 utterances are not sure" in capsys.readouterr().err
    assert len(texts(ldc, "train")) == 18 and len(texts(ldc, "dev")) == 2
    assert "i._b._m. [noise]" in (ldc.root.parent / "out/lm/train.txt").read_text()


@pytest.mark.parametrize(
    ("number", "line", "what"),
    [(1, "# fe_03_00002.sph", "not `# fe_03_00001.sph`"), (4, "1.0 A: hi", "not `begin end A:")],
)
def test_bad_lines_of_fisher_are_named(
    ldc: Ldc, capsys: pytest.CaptureFixture[str], number: int, line: str, what: str
) -> None:
    path = ldc.fisher("fe_03_00001")
    lines = path.read_text().splitlines()
    lines[number - 1] = line
    write_lines(path, lines)
    assert prepare(ldc, fisher=ldc.fisher_folders) == 2
    assert f"{path}:{number}: {what}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("sw2005A-ms98-a-0002 1.0 words", "not `sw<call><side>-ms98-a-<number> begin end words`"),
        ("sw2005A-ms98-a-0002 2.0 1.0 hi", "the utterance ends before it begins"),
        ("sw2005A-ms98-a-0002 0.0 0.977625 hi", "a second utterance sw02005-A_000000-000098"),
    ],
)
def test_bad_lines_are_named(
    ldc: Ldc, capsys: pytest.CaptureFixture[str], line: str, what: str
) -> None:
    path = ldc.trans("sw2005A")
    write_lines(path, [path.read_text().splitlines()[0], line])
    assert prepare(ldc) == 2
    said = capsys.readouterr().err
    assert f"{path}:2: {what}" in said and "Traceback" not in said


def test_what_lacks_a_recording_is_counted(ldc: Ldc, capsys: pytest.CaptureFixture[str]) -> None:
    ldc.sphere("sw02005").unlink()
    assert prepare(ldc) == 2
    said = capsys.readouterr().err
    assert "5 of 12 utterances have no recording, or lie beyond its end: sw02005-A_000000" in said
    assert prepare(ldc, max_skipped={"default": 0.02, "train": 0.5}) == 0
    assert "skipped: 5 of 12" in capsys.readouterr().err


def test_what_lies_beyond_its_recording_is_counted(
    ldc: Ldc, capsys: pytest.CaptureFixture[str]
) -> None:
    both = np.stack([tone(1.6), tone(1.6)], axis=1)
    write_sphere(ldc.sphere("sw02005"), both)
    assert prepare(ldc, max_skipped=0.5) == 0
    assert "skipped: 1 of 12" in capsys.readouterr().err


def test_a_segment_that_the_pem_lacks(ldc: Ldc, capsys: pytest.CaptureFixture[str]) -> None:
    replace_line(ldc.pem, "sw_4390 A unknown_speaker 0.50 1.50", None)
    assert prepare(ldc) == 2
    said = capsys.readouterr().err
    assert f"{ldc.stm}:5: this segment is not in hub5e_00.pem" in said


def test_shortened_sphere_is_refused_until_it_is_unpacked(
    ldc: Ldc, capsys: pytest.CaptureFixture[str]
) -> None:
    both = np.stack([tone(SECONDS, 440), tone(SECONDS, 880)], axis=1)
    path = write_sphere(ldc.sphere("sw02005"), both, "ulaw,embedded-shorten-v2.00")
    assert prepare(ldc) == 2
    said = capsys.readouterr().err
    assert f"{path}: a Sphere file compressed by shorten" in said
    assert "sph2pipe -f wav" in said
    from hadpsgd.corpus.audio import write_wav

    write_wav(path.with_suffix(".wav"), both, 8000)
    assert prepare(ldc) == 0


def test_a_missing_folder_or_file(ldc: Ldc, capsys: pytest.CaptureFixture[str]) -> None:
    (ldc.transcripts / "sw-ms98-dict.text").unlink()
    assert prepare(ldc) == 2
    assert "no file sw-ms98-dict.text" in capsys.readouterr().err
    folders = {"audio": "nowhere", "transcripts": "nowhere"}
    assert prepare(ldc, switchboard=folders) == 2
    assert "nowhere: no such folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "plain"),
    [
        ("[laughter-story]", "story"), ("[it'n/isn't]", "it'n"), ("-[an]y", "-y"),
        ("ab[solute]-", "ab-"), ("[lem[guini]-/linguini]", "lem-"), ("{yuppiedom}", "yuppiedom"),
        ("ammu[n]it-", "ammu-it-"), ("them_1's", "them's"), ("ex[specially]-/especially]", "ex"),
        ("-[laughter-y]", "-y"), ("[vocalized-noise]", "[vocalized-noise]"), ("hi", "hi"),
    ],
)  # fmt: skip
def test_marks_of_how_a_word_is_said(word: str, plain: str) -> None:
    assert mapped(word) == plain


@given(st.text("ab[]/{}-_1 ", max_size=30))
def test_any_text_gives_words_with_no_spaces_to_spare(text: str) -> None:
    made = switchboard_words(text, {})
    assert made == " ".join(made.split())


def test_acronyms_are_scored_by_their_letters() -> None:
    filters = Filters(dotted=True)
    assert filters.text("i._b._m.'s or a. dr. mr") == "i b m's or a dr. mr"
    assert Filters().text("i._b._m.") == "i._b._m."
