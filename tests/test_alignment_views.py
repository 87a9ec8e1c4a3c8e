"""The report of an alignment: Kaldi's times and pdfs, durations, outliers, TextGrids, pictures."""

from __future__ import annotations

import json
import re
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from hadpsgd import kaldi_io
from hadpsgd.alignment import pictures, views
from hadpsgd.alignment.agreement import agreement
from hadpsgd.alignment.views import Interval
from hadpsgd.cli import main
from hadpsgd.gmm.phone_segments import Segments


def test_report_of_an4_equals_kaldi(shared: Path, tmp_path: Path) -> None:
    kaldi = shared.resolve() / "kaldi_an4"
    ali, out = tmp_path / "ali", tmp_path / "out"
    ali.mkdir()
    names = ("final.mdl", "ali.1.gz")
    for name in names:
        (ali / name).symlink_to(kaldi / "exp/tri3b_ali" / name)
    utterances = [key for key, _ in kaldi_io.iterate(ali / "ali.1.gz", "ints")]
    lines = [f"{name} {-7 - number % 3 * 0.1}\n" for number, name in enumerate(utterances)]
    lines[3] = f"{utterances[3]} -19\n"
    (ali / "fits.txt").write_text("".join(lines))
    arguments = ["--ali", ali, "--lang", kaldi / "lang", "--data", kaldi / "data/train",
                 "--out", out, "--text-grids", 2]  # fmt: skip
    assert main(["alignment-report", *map(str, arguments)]) == 0
    golden = (kaldi / "golden/phone_ctm_train.txt").read_text().splitlines()
    ours = (out / "phones.ctm").read_text().splitlines()
    assert ours[: len(golden)] == [line.strip() for line in golden]
    pdfs = dict(kaldi_io.iterate(out / "pdf.ark.gz", "ints"))
    for line in (kaldi / "golden/ali_pdf_train50.txt").read_text().splitlines():
        utterance, *expected = line.split()
        assert pdfs[utterance].tolist() == [int(pdf) for pdf in expected]
    report = json.loads((out / "report.json").read_text())
    silent = sum(float(line.split()[3]) for line in ours if re.search(r" (SIL|SPN)", line))
    total = sum(float(line.split()[3]) for line in ours)
    assert report["silence_share"] == pytest.approx(silent / total, abs=1e-4)
    assert report["outliers"] == {utterances[3]: -19} and not report["cut_utterances"]
    assert sum(phone["count"] for phone in report["phones"].values()) == len(ours)
    for name in ("durations", "silence", "fits"):
        assert (out / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    grids = sorted((out / "textgrid").iterdir())
    assert len(grids) == 2
    assert re.findall(r'text = "([A-Z]\w*)"', grids[0].read_text())[0] == "YES"


def test_an_alignment_from_before_there_were_fits(
    tmp_path: Path, shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ours, so its picture is missed: said in a line, not by a file that is not there."""
    kaldi = shared.resolve() / "kaldi_an4"
    (ali := tmp_path / "ali").mkdir()
    for name in ("final.mdl", "ali.1.gz"):
        (ali / name).symlink_to(kaldi / "exp/tri3b_ali" / name)
    (ali / "scores.txt").write_text("a -7\n")
    arguments = ["--ali", ali, "--lang", kaldi / "lang", "--out", tmp_path / "out"]
    assert main(["alignment-report", *map(str, arguments)]) == 2
    told = capsys.readouterr().err
    assert f"{ali}: aligned before" in told and "Remove the folder" in told
    assert told.count("\n") == 1


def test_text_grids_of_names_that_no_file_can_have(shared: Path, tmp_path: Path) -> None:
    kaldi = shared.resolve() / "kaldi_an4"
    (ali := tmp_path / "ali").mkdir()
    (ali / "final.mdl").symlink_to(kaldi / "exp/tri3b_ali/final.mdl")
    found = islice(kaldi_io.iterate(kaldi / "exp/tri3b_ali/ali.1.gz", "ints"), 3)
    with kaldi_io.Writer(ark=ali / "ali.1.gz") as writer:
        for number, (_, ids) in enumerate(found):
            writer.write(300 * "x" + str(number), ids)
    arguments = ["--ali", str(ali), "--lang", str(kaldi / "lang"), "--out", str(tmp_path / "out")]
    assert main(["alignment-report", *arguments]) == 0
    assert len(list((tmp_path / "out/textgrid").glob("x*.TextGrid"))) == 3


def test_wrong_input_is_one_line(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kaldi = shared.resolve() / "kaldi_an4"
    base = ["alignment-report", "--lang", f"{kaldi}/lang", "--out", f"{tmp_path}/out"]
    assert main([*base, "--ali", str(tmp_path)]) == 2
    assert "final.mdl" in capsys.readouterr().err
    assert main([*base, "--ali", f"{kaldi}/exp/tri3b_ali", "--feats", str(tmp_path)]) == 2
    assert "--feats needs --data" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def parts(phones: list[int], lengths: list[int]) -> Segments:
    starts = np.cumsum([0, *lengths[:-1]])
    return Segments(np.array(phones, np.int32), starts, np.array(lengths), True)


NAMES = {1: "SIL", 2: "AH_B", 3: "T_E", 4: "AH_S"}


def test_durations_count_phones_whatever_their_place() -> None:
    found = views.Durations()
    found.add("a", parts([1, 2, 3, 4], [10, 5, 5, 20]), NAMES, [1])
    found.add("b", parts([2, 3], [7, 900]), NAMES, [1])
    assert set(found.counts) == {"SIL", "AH", "T"}
    assert found.counts["AH"].sum() == 3 and found.median("AH") == pytest.approx(0.07)
    assert found.counts["T"][views.LONGEST] == 1
    assert found.silence == {"a": 0.25, "b": 0.0}
    assert found.silence_share == pytest.approx(10 / 947)


def test_words_lie_over_their_phones() -> None:
    phones = views.phone_intervals(parts([1, 2, 3, 4], [10, 5, 5, 20]), NAMES)
    words = views.word_intervals(phones, ["AT", 'A"H'])
    assert [word.label for word in words] == ["", "AT", 'A"H']
    np.testing.assert_allclose([word[:2] for word in words], [[0, 0.1], [0.1, 0.2], [0.2, 0.4]])
    assert views.word_intervals(phones, ["AT"]) == []
    grid = views.text_grid({"words": words, "phones": phones})
    assert 'text = "A""H"' in grid and "xmax = 0.400" in grid and "size = 2" in grid
    assert views.word_intervals([Interval(0, 1, "AH")], ["A"]) == []


def test_outliers_do_not_hide_one_another() -> None:
    rng = np.random.default_rng(0)
    scores = {f"u{number}": -7 + 0.1 * rng.normal() for number in range(200)}
    scores |= {f"bad{number}": -20.0 - number for number in range(20)}
    found, limit = views.low_outliers(scores)
    assert [each.utterance for each in found] == [f"bad{number}" for number in range(19, -1, -1)]
    assert -8.5 < limit < -7.2
    assert views.low_outliers({}) == ([], -np.inf)
    assert pictures.fits(scores).axes[0].get_title(loc="left").startswith("20 of 220")


def test_the_limit_of_outliers_is_four_deviations() -> None:
    """Estimated so that it is the standard deviation where scores are normal."""
    scores = {
        f"u{i}": score for i, score in enumerate(np.random.default_rng(1).normal(-7, 0.2, 99))
    }
    values = list(scores.values())
    deviation = scipy.stats.median_abs_deviation(values, scale="normal")
    _, limit = views.low_outliers(scores)
    assert limit == pytest.approx(np.median(values) - 4 * deviation, rel=1e-4)


def test_agreement_is_over_the_frames_that_both_have() -> None:
    """Whatever the order of utterances, and whichever alignment is longer."""
    pdf = np.array([-1, 0, 0, 1, 2], np.int32)
    one = {"a": [1, 1, 3, 4], "b": [3, 3], "c": [1, 2, 3], "alone": [1]}
    other = {"c": [2, 1, 4, 4, 4], "a": [2, 3, 3], "b": [3, 4, 4], "lonely": [4]}

    def items(ids: dict[str, list[int]]) -> list[tuple[str, np.ndarray]]:
        return [(name, np.array(values, np.int32)) for name, values in ids.items()]

    # a: 2 of 3, b: 1 of 2, c: 2 of 3
    for first, second in ((one, other), (other, one)):
        assert agreement(items(first), items(second), pdf) == pytest.approx(5 / 8)
    assert agreement(items({"a": [1]}), items({"b": [1]}), pdf) is None
