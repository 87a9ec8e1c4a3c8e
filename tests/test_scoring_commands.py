"""The commands that choose, score and list what was recognised; damaged input of theirs."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from hadpsgd import diverged
from hadpsgd.cli import main
from hadpsgd.corpus import stm
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.corpus.references import write_glm
from hadpsgd.decoding import lattice_io
from hadpsgd.decoding.lattice import ARC, Lattice
from hadpsgd.graph.transitions import Transitions
from hadpsgd.reports.causes import utterances_of
from hadpsgd.scoring import formats, nist
from hadpsgd.scoring.hypotheses import segments


def chain(words: list[int], graph: list[float]) -> Lattice:
    """A lattice of two alternatives: each says its word on its only frame."""
    final = np.array([[np.inf, np.inf], [0, 0]], np.float32)
    arcs = np.array([(1, w, g, 0.0, 1) for w, g in zip(words, graph, strict=True)], ARC)
    return Lattice(final, np.array([0, len(arcs), len(arcs)]), arcs)


@pytest.fixture
def decoded(tmp_path: Path) -> tuple[Path, Path]:
    """(decoding folder, data directory): two utterances decoded, a third without lattice."""
    folder, data = tmp_path / "decode", tmp_path / "dev"
    (folder / "phones").mkdir(parents=True)
    (folder / "words.txt").write_text("<eps> 0\nyes 1\nno 2\n!SIL 3\n")
    (folder / "phones/align_lexicon.int").write_text("1 1 1\n2 2 1\n3 3 1\n")
    one = np.ones(2, np.int32)
    Transitions(one, one, one.astype(bool), ~one.astype(bool)).write(folder / "transitions.npz")
    with (folder / "lat.1.gz").open("wb") as stream:
        for name, content in (("a-1", chain([1, 2], [1.0, 0.5])), ("a-2", chain([3], [0.0]))):
            stream.write(lattice_io.entry(name, content))
    data.mkdir()
    (data / "utt2spk").write_text("a-1 a\na-2 a\nb-1 b\n")
    (data / "text").write_text("a-1 yes\na-2 no\nb-1 yes no\n")
    return folder, data


def test_tune_and_score_commands(
    decoded: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, data = decoded
    config = tmp_path / "config.yaml"
    config.write_text("name: t\ncorpus: {kind: an4}\n")
    common = ["--config", str(config), "--decode", str(folder), "--data", str(data)]
    assert main(["tune", *common, "--out", str(tmp_path / "tuned.json")]) == 0
    tuned = json.loads((tmp_path / "tuned.json").read_text())
    assert (tuned["errors"], tuned["words"]) == (4, 4)
    assert "100.00 % of 4 words, the middle of 33 of 33 settings with 4" in capsys.readouterr().err
    assert len(tuned["tried"]) == 33
    out = tmp_path / "score"
    arguments = ["score", *common, "--tuned", str(tmp_path / "tuned.json"), "--out", str(out)]
    assert main(arguments) == 0
    report = json.loads((out / "wer.json").read_text())
    assert [report[key] for key in ("words", "sub", "del", "ins")] == [4, 1, 3, 0]
    assert report["wer"] == 100.0
    assert report["without_lattice"] == ["b-1"]
    assert report["speakers"]["b"]["del"] == 2
    assert (out / "hyp.txt").read_text() == "a-1 no\na-2\nb-1\n"
    assert (out / "ctm").read_text() == "a-1 1 0.00 0.01 no 0.6225\n"
    scored = nist.score_ctm(stm.read(out / "stm"), formats.read_ctm(out / "ctm"))
    assert nist.total(scored).errors == 4
    assert "Eval: S" in (out / "alignments.txt").read_text()


def test_one_choice_for_several_runs(
    decoded: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The errors of all count; a run that diverged has none."""
    folder, data = decoded
    other, gone = tmp_path / "other", tmp_path / "gone"
    shutil.copytree(folder, other)
    with (other / "lat.1.gz").open("wb") as stream:
        stream.write(lattice_io.entry("a-1", chain([1], [0.0])))
    diverged.leave(gone, why="loss nan", what="decoded")
    config = tmp_path / "config.yaml"
    config.write_text("name: t\ncorpus: {kind: an4}\n")
    common = ["tune", "--config", str(config), "--data", str(data), "--out", str(tmp_path / "t")]
    found = []
    for runs in ([folder], [other], [folder, gone, other]):
        assert main([*common, "--decode", *map(str, runs)]) == 0
        found.append([each["errors"] for each in json.loads((tmp_path / "t").read_text())["tried"]])
    assert found[2] == [one + two for one, two in zip(found[0], found[1], strict=True)]
    assert main([*common, "--decode", str(gone), str(other)]) == 0
    assert json.loads((tmp_path / "t").read_text()) == {"diverged": "loss nan"}
    config.write_text("name: t\ncorpus: {kind: an4}\nlm: {neural: {}}\n")
    assert main([*common, "--decode", str(folder), str(other), "--lists", "x"]) == 2
    assert "--lists of 1 runs, --decode of 2" in capsys.readouterr().err


@pytest.mark.parametrize("glm", [False, True])
def test_overlapping_utterances_without_an_stm(
    decoded: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], glm: bool
) -> None:
    """A perfect hypothesis had errors: a word went to the utterance that overlaps its own."""
    folder, data = decoded
    with (folder / "lat.1.gz").open("wb") as stream:
        for i, name in enumerate(("a-1", "a-2", "a-3", "b-1")):
            stream.write(lattice_io.entry(name, chain([1, 2], [1.0 + i, 0.5])))
    (data / "utt2spk").write_text("a-1 a\na-2 a\na-3 a\nb-1 b\n")
    (data / "text").write_text("a-1 no\na-2 no\na-3 no\nb-1 yes\n")
    (data / "segments").write_text("a-1 r 0 5\na-2 r 3 8\na-3 r 5 9\nb-1 q 0 5\n")
    (data / "wav.scp").write_text("q q.wav\nr r.wav\n")
    if glm:
        write_glm(data / "glm")
    (tmp_path / "config.yaml").write_text("name: t\ncorpus: {kind: an4}\n")
    (tmp_path / "tuned.json").write_text('{"lm_weight": 10, "word_penalty": 0}')
    out = tmp_path / "score"
    arguments = ["--config", str(tmp_path / "config.yaml"), "--decode", str(folder)]
    arguments += ["--data", str(data), "--tuned", str(tmp_path / "tuned.json"), "--out", str(out)]
    assert main(["score", *arguments]) == 0
    report = json.loads((out / "wer.json").read_text())
    assert (report["speakers"]["a"]["words"], report["speakers"]["a"]["errors"]) == (3, 0)
    assert report["errors"] == 1  # b's: hubscr itself crashes where there is none at all
    assert not report["nist"] or report["nist"].get("agrees"), report["nist"]
    said = capsys.readouterr().err
    assert "1 utterance overlaps another of its channel (first: a-2, scored as file r-2)" in said
    assert [line.split()[:2] for line in (out / "stm").read_text().splitlines()] == [
        ["q", "1"], ["r", "1"], ["r", "1"], ["r-2", "1"]
    ]  # fmt: skip
    scored = nist.score_ctm(stm.read(out / "stm"), formats.read_ctm(out / "ctm"))
    found = utterances_of(scored, DataDir.read(data, audio=False))
    assert sorted(found.values()) == ["a-1", "a-2", "a-3", "b-1"]
    # a reference of the user's own is scored as NIST's tools do, by time
    (data / "stm").write_text("q 1 b 0 5 no\nr 1 a 0 8 no no\nr 1 a 8 9\n")
    assert main(["score", *arguments]) == 0
    assert "r-2" not in (out / "ctm").read_text()


def test_recordings_that_differ_in_case_alone(decoded: tuple[Path, Path], tmp_path: Path) -> None:
    """A perfect hypothesis had errors: NIST's tools, and we, take both for one file."""
    folder, data = decoded
    names = ["a-1", "a-2", "b-1", "b-2"]
    with (folder / "lat.1.gz").open("wb") as stream:
        for name in names:
            stream.write(lattice_io.entry(name, chain([1, 2], [1.0, 0.5 + name.endswith("2")])))
    (data / "utt2spk").write_text("a-1 a\na-2 a\nb-1 b\nb-2 b\n")
    (data / "text").write_text("a-1 no\na-2 yes\nb-1 no\nb-2 yes yes\n")
    (data / "segments").write_text("a-1 X1 0 2\na-2 X1 4 6\nb-1 x1 2 4\nb-2 x1 6 8\n")
    (data / "wav.scp").write_text("X1 1.wav\nx1 2.wav\n")
    (tmp_path / "config.yaml").write_text("name: t\ncorpus: {kind: an4}\n")
    (tmp_path / "tuned.json").write_text('{"lm_weight": 10, "word_penalty": 0}')
    out = tmp_path / "score"
    arguments = ["--config", str(tmp_path / "config.yaml"), "--decode", str(folder)]
    arguments += ["--data", str(data), "--tuned", str(tmp_path / "tuned.json"), "--out", str(out)]
    for own in (False, True):
        if own:  # a reference of the user's own, in order of time
            lines = ["X1 1 a 0 2 no", "x1 1 b 2 4 no", "X1 1 a 4 6 yes", "x1 1 b 6 8 yes yes"]
            (data / "stm").write_text("".join(f"{line}\n" for line in lines))
        assert main(["score", *arguments]) == 0
        report = json.loads((out / "wer.json").read_text())
        assert [report[key] for key in ("words", "sub", "del", "ins")] == [5, 0, 1, 0]
        assert not report["nist"] or report["nist"].get("agrees"), report["nist"]
        scored = nist.score_ctm(stm.read(out / "stm"), formats.read_ctm(out / "ctm"))
        found = utterances_of(scored, DataDir.read(data, audio=False))
        assert sorted(found.values()) == names


def test_nbest_and_phone_times_of_a_decoding(decoded: tuple[Path, Path], tmp_path: Path) -> None:
    folder, data = decoded
    (folder / "phones.txt").write_text("<eps> 0\nAH 1\n#0 2\n")
    config, tuned = tmp_path / "config.yaml", tmp_path / "tuned.json"
    config.write_text("name: t\ncorpus: {kind: an4}\n")
    tuned.write_text('{"lm_weight": 10, "word_penalty": 0}')
    common = ["--decode", str(folder), "--data", str(data), "--tuned", str(tuned)]
    out = tmp_path / "nbest"
    assert main(["nbest", "--config", str(config), *common, "--out", str(out)]) == 0
    # the best first; silence is no word
    assert (out / "text").read_text() == "a-1-1 no\na-1-2 yes\na-2-1\n"
    assert (out / "graph_costs").read_text() == "a-1-1 0.5000\na-1-2 1.0000\na-2-1 0.0000\n"
    assert (out / "acoustic_costs").read_text().splitlines()[0] == "a-1-1 0.0000"
    arguments = ["nbest", "--config", str(config), *common, "--out", str(out), "--count"]
    assert main([*arguments, "1"]) == 0
    assert (out / "text").read_text() == "a-1-1 no\na-2-1\n"
    assert main([*arguments, "0"]) == 2
    assert main(["phone-ctm", *common, "--out", str(tmp_path / "phones.ctm")]) == 0
    lines = (tmp_path / "phones.ctm").read_text().splitlines()
    assert lines == ["a-1 1 0.00 0.01 AH", "a-2 1 0.00 0.01 AH"]
    (folder / "phones.txt").write_text("<eps> 0\n")
    assert main(["phone-ctm", *common, "--out", str(tmp_path / "phones.ctm")]) == 2


def test_segments_of_a_data_directory(decoded: tuple[Path, Path]) -> None:
    _, data = decoded
    made = segments(DataDir.read(data, audio=False), {"a-1": 2.0})
    assert [s.line() for s in made][:2] == ["a-1 1 a 0.00 2.00 yes", "a-2 1 a 0.00 0.01 no"]


def test_an_utterance_that_the_data_lacks(
    decoded: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, data = decoded
    (data / "utt2spk").write_text("a-1 a\nb-1 b\n")
    (data / "text").write_text("a-1 yes\nb-1 yes no\n")
    (tmp_path / "config.yaml").write_text("name: t\ncorpus: {kind: an4}\n")
    (tmp_path / "tuned.json").write_text('{"lm_weight": 10, "word_penalty": 0}')
    common = ["--config", str(tmp_path / "config.yaml"), "--decode", str(folder)]
    common += ["--data", str(data)]
    for stage, extra in (("tune", []), ("score", ["--tuned", str(tmp_path / "tuned.json")])):
        assert main([stage, *common, *extra, "--out", str(tmp_path / stage)]) == 2
        assert "the data has no utterance a-2" in capsys.readouterr().err
    (tmp_path / "tuned.json").write_text("{}")
    arguments = ["--tuned", str(tmp_path / "tuned.json"), "--out", str(tmp_path / "score")]
    assert main(["score", *common, *arguments]) == 2
    assert "not from `hadpsgd tune`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("words.txt", b"", r"words\.txt: no words"),
        ("words.txt", b"<eps> 0\nyes 1\n", r"words\.txt: lacks word 2, which a lattice has"),
        ("words.txt", b"<eps> 0\nyes \xff\n", r"words\.txt: not lines of `word number`"),
        ("transitions.npz", b"", r"transitions\.npz: damaged"),
        ("lat.1.gz", b"", r"lattice of a-1: transition-id 9, and transitions\.npz ends at 1"),
        ("../tuned.json", b'{"lm_weight": 0, "word_penalty": 0}', r"tuned\.json: not from"),
        ("../tuned.json", b"\xff", r"tuned\.json: not from"),
    ],
)
def test_damaged_decodings_are_named(
    decoded: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    file: str,
    content: bytes,
    message: str,
) -> None:
    folder, data = decoded
    (tmp_path / "config.yaml").write_text("name: t\ncorpus: {kind: an4}\n")
    (tmp_path / "tuned.json").write_text('{"lm_weight": 10, "word_penalty": 0}')
    if file == "lat.1.gz":
        lattice = chain([1], [0.0])
        lattice.arcs["ilabel"] = 9
        content = lattice_io.entry("a-1", lattice)
    (folder / file).write_bytes(content)
    common = ["--config", str(tmp_path / "config.yaml"), "--decode", str(folder)]
    common += ["--data", str(data)]
    tuned = ["--tuned", str(tmp_path / "tuned.json")]
    assert main(["score", *common, *tuned, "--out", str(tmp_path / "score")]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "score").exists()
    if file == "words.txt":
        assert main(["tune", *common, "--out", str(tmp_path / "out.json")]) == 2
        assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"sentences\.jsonl: no sentences"),
        (b"\xff\n", r"sentences\.jsonl:1: damaged"),
        (b'{"name": "a"', r"sentences\.jsonl:1: damaged"),
        (b"[1]\n", r"sentences\.jsonl:1: damaged"),
        (b'{"name": "a", "speaker": "b", "edits": [["X", "a", "a"]]}', ":1: damaged .no kind of"),
    ],
)
def test_damaged_scores_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, message: str
) -> None:
    (tmp_path / "sentences.jsonl").write_bytes(content)
    (tmp_path / "words").write_text("a\n")
    for arguments in (["word-recall", "--words", str(tmp_path / "words")], ["significance"]):
        assert main([*arguments, str(tmp_path)]) == 2
        assert re.search(message, capsys.readouterr().err)


def test_lists_of_words_are_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content, message in ((b"\xff\n", "words: not UTF-8 text"), (b"\n", "words: no words")):
        (tmp_path / "words").write_bytes(content)
        assert main(["word-recall", str(tmp_path), "--words", str(tmp_path / "words")]) == 2
        assert message in capsys.readouterr().err
