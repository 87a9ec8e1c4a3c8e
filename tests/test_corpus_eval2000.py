"""NIST's test sets as Kaldi prepares them: parts of a folder, stm and data that fit, case."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from corpus_data import write_lines
from eval2000_data import STM_HEAD, corpus_config, make_eval2000, stm_lines

from hadpsgd.cli import main
from hadpsgd.corpus import stm
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.scoring import nist
from hadpsgd.scoring.filters import Filters
from hadpsgd.scoring.reference import Reference

PARTS = {"swb": "sw_*", "ch": "en_*"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_eval2000(tmp_path / "s5c")


def prepare(tmp_path: Path, data: Path, **more: object) -> int:
    parts = {name: {"data": str(data), "recordings": files} for name, files in PARTS.items()}
    config = corpus_config(tmp_path / "c.yaml", data, {**parts, "all": str(data)}, **more)
    return main(["corpus", "--config", str(config), "--out", str(tmp_path / "out")])


def test_two_test_sets_of_one_folder(data: Path, tmp_path: Path) -> None:
    assert prepare(tmp_path, data) == 0
    for name, prefix, others in (("swb", "sw_", "en_"), ("ch", "en_", "sw_")):
        folder = tmp_path / "out/data" / name
        part = DataDir.read(folder)
        assert part.recordings and all(r.startswith(prefix) for r in part.recordings)
        for table in ("segments", "text", "utt2spk", "spk2utt", "reco2file_and_channel"):
            assert others not in (folder / table).read_text()
        reference = Reference.of(part, {}, Filters())
        assert {segment.file[:3] for segment in reference.segments} == {prefix}
        assert list(reference.comments) == STM_HEAD  # the labels stay defined
        assert nist.total(reference.score([])).sentences == len(part)
        assert (folder / "glm").is_file()
    whole = tmp_path / "out/data/all"
    assert (whole / "stm").read_text().splitlines() == stm_lines()


@pytest.mark.parametrize("config", [True, False])
def test_a_whole_stm_beside_half_of_the_data(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], config: bool
) -> None:
    for table in ("wav.scp", "segments", "text", "utt2spk", "reco2file_and_channel"):
        lines = (data / table).read_text().splitlines()
        write_lines(data / table, [line for line in lines if line.startswith("sw_")])
    lexicon = ["--lexicon", str(data.parents[1] / "lexicon.txt"), "--case", "lower"]
    if config:
        path = corpus_config(tmp_path / "c.yaml", data, {"swb": str(data)})
        code = main(["corpus", "--config", str(path), "--out", str(tmp_path / "out")])
    else:
        code = main(["validate", str(data), *lexicon])
    said = capsys.readouterr().err
    assert code == 2
    assert "stm: 6 of 11 words (54.5 %) are of recordings that the data lacks (1: en_4156)" in said
    assert "recordings: 'sw_*'" in said
    half = {"data": str(data), "recordings": "sw_*"}
    half_config = corpus_config(tmp_path / "h.yaml", data, {"swb": half}, train=half, dev=half)
    assert main(["corpus", "--config", str(half_config), "--out", str(tmp_path / "out")]) == 0
    assert "stm: 3 of its 6 segments, of recordings sw_*" in capsys.readouterr().err
    assert main(["validate", str(data), *lexicon, "--recordings", "sw_*"]) == 0


def test_what_an_stm_may_have_more(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for table in ("segments", "text", "utt2spk"):
        lines = (data / table).read_text().splitlines()
        write_lines(data / table, [line for line in lines if "sw_4390-A" not in line])
    assert prepare(tmp_path, data) == 2
    assert "words (27.3 %) lie in no utterance" in capsys.readouterr().err
    assert prepare(tmp_path, data, max_uncovered={"default": 0.3, "swb": 0.6}) == 0
    assert (
        "3 of 5 words (60.0 %) lie in no utterance and count as deleted" in capsys.readouterr().err
    )


def test_a_recording_that_the_stm_lacks(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_lines(data / "stm", [line for line in stm_lines() if not line.startswith("sw_4390 A")])
    assert prepare(tmp_path, data) == 2
    assert "stm: lacks 1 of 4 recordings of the data: sw_4390 a" in capsys.readouterr().err
    (data / "reco2file_and_channel").unlink()
    assert main(["validate", str(data), "--case", "lower"]) == 2
    assert "reco2file_and_channel" in capsys.readouterr().err


def test_an_stm_out_of_order(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A perfect hypothesis scored 100 %: every word went to the segment that came first."""
    lines = stm_lines()
    turned = [*(line for line in lines if line in STM_HEAD), *reversed(lines[len(STM_HEAD) :])]
    write_lines(data / "stm", turned)
    assert prepare(tmp_path, data) == 2
    assert "not in order of time. Sort it: sort -k1,1 -k2,2 -k4,4n" in capsys.readouterr().err
    assert main(["validate", str(data), "--case", "lower"]) == 2
    assert re.search(r"/stm:\d+: the segment at .* not in order of time", capsys.readouterr().err)


def test_a_part_that_is_not_there(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part = {"data": str(data), "recordings": ["sw_*", "fe_*"]}
    config = corpus_config(tmp_path / "c.yaml", data, {"swb": part})
    assert main(["corpus", "--config", str(config), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert "no recording 'fe_*'. Its recordings are such as en_4156, sw_4390" in said


def test_parentheses_that_nists_filter_refuses(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / "stm").write_text((data / "stm").read_text().replace("(BOB)", "((BOB)"))
    assert prepare(tmp_path, data) == 2
    assert "sw_4390 A 0.20: parentheses that do not fit" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("stm", "HI ANN", "{ HI / ANN", "en_4156 B 0.50: braces that do not fit"),
        ("stm", "HI ANN", "HI } ANN", "braces that do not fit"),
        ("glm", "[uh] => %HESITATION", "[uh] -> %HESITATION", "a rule needs =>"),
    ],
)
def test_references_that_scoring_would_refuse_after_training(
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    file: str,
    old: str,
    new: str,
    message: str,
) -> None:
    text = (data / file).read_text()
    assert old in text
    (data / file).write_text(text.replace(old, new))
    assert prepare(tmp_path, data) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


def test_upper_case_transcripts_and_a_lower_case_lexicon(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare(tmp_path, data, case="as-is") == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "90.9 % of 11 words are not in the lexicon as they are written" in said[0]
    assert "in lower case 0.0 %. Set corpus.case: lower" in said[0]
    assert prepare(tmp_path, data) == 0
    assert "sw_4390-A_000020-000120 bye bye (bob)\n" in (tmp_path / "out/data/swb/text").read_text()
    assert "BYE BYE (BOB)" in (tmp_path / "out/data/swb/stm").read_text()  # sclite folds case


def test_a_share_that_may_be_missing(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "text").write_text((data / "text").read_text().replace("HI ANN", "HI EVE"))
    lexicon = str(data.parents[1] / "lexicon.txt")
    check = ["validate", str(data), "--lexicon", lexicon, "--case", "lower", "--max-oov"]
    assert [main([*check, share]) for share in ("0.05", "0.1", "2")] == [2, 0, 2]
    assert "--max-oov is a number from 0 to 1, not 2" in capsys.readouterr().err


def test_a_word_that_the_lexicon_has_as_it_is_stays(data: Path, tmp_path: Path) -> None:
    lexicon = data.parents[1] / "lexicon.txt"
    lexicon.write_text(lexicon.read_text() + "BOB Y\n")
    assert prepare(tmp_path, data) == 0
    assert "hello BOB" in (tmp_path / "out/data/ch/text").read_text()


def test_limits_by_set(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "text").write_text((data / "text").read_text().replace("HI ANN", "HI EVE"))
    limits = {"default": 0.2, "swb": 0.0}
    assert prepare(tmp_path, data, max_oov=limits) == 0
    assert prepare(tmp_path, data, max_oov=limits | {"ch": 0.1}) == 2
    assert "'EVE' is not in the lexicon (1 time)" in capsys.readouterr().err
    assert prepare(tmp_path, data, max_oov=limits | {"cg": 0.1}) == 2
    assert (
        "corpus.max_oov: no set 'cg'; there are train, dev, all, ch, swb, default"
        in capsys.readouterr().err
    )


def test_gzipped_texts(data: Path, tmp_path: Path) -> None:
    assert prepare(tmp_path, data) == 0
    plain = {p.name: p.read_bytes() for p in sorted((tmp_path / "out/data/swb").iterdir())}
    names = ("text", "stm", "glm", "segments", "utt2spk", "reco2file_and_channel")
    for path in [*(data / name for name in names), data.parents[1] / "lexicon.txt"]:
        packed = path.with_name(f"{path.name}.gz")
        packed.write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    lexicon = str(data.parents[1] / "lexicon.txt.gz")
    assert prepare(tmp_path, data, dict_dir=lexicon) == 0
    again = {p.name: p.read_bytes() for p in sorted((tmp_path / "out/data/swb").iterdir())}
    assert again == plain
    assert len(stm.read(data / "stm.gz")) == 6
    folder = tmp_path / "dict"  # as Kaldi's, its lexicon packed
    folder.mkdir()
    (folder / "lexicon.txt.gz").write_bytes(
        Path(lexicon).read_bytes() + gzip.compress(b"<unk> S\n")
    )
    for name, phones in (("silence", "S"), ("nonsilence", "X")):
        write_lines(folder / f"{name}_phones.txt", [phones])
    write_lines(folder / "optional_silence.txt", ["S"])
    assert prepare(tmp_path, data, dict_dir=str(folder)) == 0
    assert "ann X" in (tmp_path / "out/dict/lexicon.txt").read_text().splitlines()


def test_a_damaged_gzip_file_is_one_line(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = gzip.compress((data / "stm").read_bytes())
    (data / "stm").write_bytes(packed[:-20])
    assert prepare(tmp_path, data) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "stm: damaged gzip file" in said
