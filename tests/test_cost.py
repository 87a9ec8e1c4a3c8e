"""`hadpsgd cost`, and what a dry run says of hours and disk."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import yaml

from hadpsgd.cli import main
from hadpsgd.config import Config, check, load
from hadpsgd.config.neural_lm import NeuralLm
from hadpsgd.gmm.partial_sums import SHARES
from hadpsgd.gmm.statistics import Statistics
from hadpsgd.models.blstm import BLSTM
from hadpsgd.planning import language, papers
from hadpsgd.planning.amounts import amounts
from hadpsgd.planning.cost import LFMMI, SEARCH, Machines, Row, cost, disk, shown, total
from hadpsgd.planning.pieces import measured
from hadpsgd.planning.resources import StageNeeds
from hadpsgd.planning.stages import GROUPS
from hadpsgd.setup.need import network_parameters

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent


def config(name: str) -> Config:
    return load(ROOT / f"config/{name}.yaml")


def by_stage(rows: list[Row]) -> dict[str, Row]:
    return {row.stage: row for row in rows}


def test_every_group_was_measured() -> None:
    rows = cost(config("swb300"), Machines(cores=1), train=300, test=9)
    stages = [row.stage for row in rows]
    assert stages[: len(GROUPS)] == list(GROUPS)
    assert [name.split()[0] for name in stages[len(GROUPS) :]] == ["train", "train", "decoding"]
    assert all(row.core_hours > 0 for row in rows)


def test_before_training_the_line_that_was_measured() -> None:
    """By hand, of the file that the benchmark wrote; models larger than measured cost more."""
    swb = config("swb300")
    pieces = measured()
    rows = by_stage(cost(swb, Machines(cores=10), train=300, test=9))
    mono, sat = pieces.stages["mono"], pieces.stages["sat"]
    names = ("mono", "tri", "lda_mllt", "sat")
    by_hand = sum(
        pieces.stages[n].fixed_seconds + 300 * pieces.stages[n].hour_seconds for n in names
    )
    assert rows["alignment"].core_hours >= by_hand / 3600
    assert rows["alignment"].hours == pytest.approx(rows["alignment"].core_hours / 10)
    assert mono.seconds(2) - mono.seconds(1) == pytest.approx(mono.hour_seconds)
    more = sat.seconds(2, gaussians=5000) - sat.seconds(2)
    assert more == pytest.approx(2 * 5 * sat.size_seconds)
    assert sat.seconds(2, gaussians=-5000) == sat.seconds(2)


def test_a_config_pays_for_what_it_has() -> None:
    rows = by_stage(cost(config("demo"), Machines(cores=2), train=0.5, test=0.7))
    assert not {"FMLLR", "i-vectors"} & rows.keys()
    assert {"corpus", "features", "alignment", "examples", "decoding"} <= rows.keys()


def test_a_neural_language_model_is_paid_for(tmp_path: Path) -> None:
    """By words of text and sentences: twice as much of either costs twice as much."""

    def rows_of(base: Config, test: float = 0.7, **neural: object) -> dict[str, Row]:
        lm = base.lm.model_dump() | {"neural": neural}
        other = check(base.model_dump() | {"lm": lm}, "neural")
        return by_stage(cost(other, Machines(cores=2), train=0.5, test=test))

    demo = config("demo")
    assert (
        not {"neural-lm", "neural-lists"}
        & by_stage(cost(demo, Machines(cores=2), train=0.5, test=0.7)).keys()
    )
    one = rows_of(demo)
    assert one["neural-lm"].core_hours > 0 and one["neural-lists"].core_hours > 0
    assert one["neural-lm"].hours == one["neural-lm"].core_hours
    twice = rows_of(demo, test=1.4, epochs=10, threads=2, nbest=100)
    assert twice["neural-lm"].core_hours == pytest.approx(2 * one["neural-lm"].core_hours)
    assert twice["neural-lm"].hours == pytest.approx(one["neural-lm"].hours)
    assert twice["neural-lists"].core_hours == pytest.approx(2 * one["neural-lists"].core_hours)
    # a step of Adam takes as long, however few sentences it has
    small = rows_of(demo, batch=4)
    assert small["neural-lm"].core_hours > 1.1 * one["neural-lm"].core_hours
    # what was measured: 8,989 words a processor second with 1,800 words, 293 with 100,000
    neural = NeuralLm()
    for words, speed in ((1_800, 8_989), (100_000, 293)):
        assert language.word_seconds(neural, words) == pytest.approx(1 / speed, rel=0.05)
    # a text of its own, by its size
    text = tmp_path / "web.txt"
    text.write_text("word " * 50_000)
    swb = config("swb300")
    more = check(swb.model_dump() | {"lm": {"neural": {}, "sources": {"web": str(text)}}}, "more")
    speech = language.text_words(swb, 300)
    assert speech == pytest.approx(3.1e6, rel=0.1)
    assert language.text_words(more, 300) - speech == pytest.approx(50_000, rel=0.1)


def test_training_on_gpus_is_the_model_of_time() -> None:
    """The papers' recipe on the papers' GPUs, 16 of them: D1D took 5.88 hours (E, Table 3)."""
    swb = config("swb2000")
    training = swb.training.model_dump() | {
        "runs": [{"strategy": "d1d", "learners": 16}]
    }  # fmt: skip
    d1d = check(swb.model_dump() | {"training": training}, "d1d")
    machines = Machines(cores=16, nodes=3, gpus=papers.NODE_OF_E)
    (row,) = (r for r in cost(d1d, machines, train=2000, test=9) if r.stage.startswith("train"))
    assert row.hours == pytest.approx(papers.TABLE_3[16], rel=0.05)
    assert row.gpu_hours == pytest.approx(16 * row.hours)
    (faster,) = (
        r
        for r in cost(d1d, replace(machines, speed=2.0), train=2000, test=9)
        if r.stage.startswith("train")
    )
    assert 0.5 * row.hours <= faster.hours < 0.6 * row.hours


def test_parameters_are_those_of_the_network() -> None:
    swb = config("swb300")
    model = BLSTM(swb.model, input_dim=260, num_pdfs=32_000, device="meta")
    there = sum(p.numel() for p in model.parameters())
    assert network_parameters(swb, swb.training.members[0].id) == there
    on_cores = Machines(cores=64)
    (row,) = (
        r for r in cost(swb, on_cores, train=300, test=9) if r.stage == "train single-batch256"
    )
    operations = 16 * 6 * there * 300 * 360_000
    assert row.core_hours == pytest.approx(operations / measured().gflops / 1e9 / 3600)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The last line of the table is the sum of the others."""
    file = str(ROOT / "config/swb2000.yaml")
    assert main(["cost", "--config", file, "--nodes", "8", "--gpus", "8", "--cores", "64"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("2,000 hours of training speech")
    table = told.split("\n\n")[1].splitlines()
    core_hours = [
        float(re.split(r"  +", line)[1].replace(",", "").replace("-", "0")) for line in table[1:]
    ]
    assert sum(core_hours[:-1]) == pytest.approx(core_hours[-1], rel=0.01)
    speeds = len(config("swb2000").corpus.speeds)
    gib = disk(config("swb2000"), train=2000) / 2**30
    assert f"{shown(gib)} GiB of disk" in told and speeds >= 1


def test_the_manual_shows_what_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    manual = (ROOT / "docs/cost.md").read_text()
    command, _, shown_there = manual.partition("$ hadpsgd ")[2].partition("\n")
    assert main(command.split()) == 0
    assert capsys.readouterr().out == shown_there.partition("```")[0]
    sys.path.append(str(ROOT / "benchmarks"))
    from cost_page import table

    assert table() in manual


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--hours-of-speech", "0"), "a number above 0"),
        (("--cores", "0"), "--cores"),
        (("--nodes", "1", "--gpus", "2"), "64 learners on 1 nodes of 2 GPUs"),
        (("--gpu-speed", "nan"), "--gpu-speed"),
        (("--core-price", "-1"), "--core-price"),
    ],
)
def test_what_cannot_be_is_refused(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cost", "--config", str(ROOT / "config/swb300.yaml"), *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


def of_directories(folder: Path, **changes: object) -> Path:
    """A config of the data directories train, dev and test of a folder, in it."""
    train, dev, test = (str(folder / name) for name in ("train", "dev", "test"))
    sets: dict[str, object] = {"train": train, "dev": dev, "tests": {"test": test}}
    corpus = {"kind": "kaldi", **sets, "dict_dir": str(folder), **changes}
    file = folder / "x.yaml"
    file.write_text(yaml.safe_dump({"name": "x", "corpus": corpus}))
    return file


def test_nobody_knows_the_hours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Commands in wav.scp, and no table of durations; a folder that is not there is named."""
    file = of_directories(tmp_path)
    assert main(["cost", "--config", str(file)]) == 2
    assert f"{tmp_path}/train: no such data directory" in capsys.readouterr().err
    said = tmp_path / "said.yaml"
    said.write_text(file.read_text() + "speech_hours: 20\n")
    assert main(["cost", "--config", str(said)]) == 0
    told = "20 hours of training speech, 2 to decode (the config; a tenth as much to decode is"
    assert capsys.readouterr().out.startswith(told)
    for name in ("train", "dev", "test"):
        (tmp_path / name).mkdir()
        for table, text in (("wav.scp", "sph2pipe a.sph |"), ("utt2spk", "a"), ("text", "word")):
            (tmp_path / name / table).write_text(f"a {text}\n")
    assert main(["cost", "--config", str(file)]) == 2
    told = capsys.readouterr().err
    assert "--hours-of-speech" in told and "utt2dur" in told
    assert main(["cost", "--config", str(file), "--hours-of-speech", "20"]) == 0
    told = "20 hours of training speech, 2 to decode (given; a tenth as much to decode is assumed)"
    assert capsys.readouterr().out.startswith(told)


def test_audio_tells_where_no_table_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, minutes in (("train", 6), ("dev", 3)):
        (folder := tmp_path / name).mkdir()
        soundfile.write(folder / "a.wav", np.zeros(minutes * 60 * 8000, np.int16), 8000)
        for table, text in (("wav.scp", str(folder / "a.wav")), ("utt2spk", "a"), ("text", "x")):
            (folder / table).write_text(f"a {text}\n")
    file = of_directories(tmp_path, tests={"test": str(tmp_path / "dev")})
    assert main(["cost", "--config", str(file)]) == 0
    told = "0.1 hours of training speech, 0.1 to decode (the data's durations)"
    assert capsys.readouterr().out.startswith(told)


def test_sequences_and_adaptation_have_their_seconds() -> None:
    """Numerator and denominator of lattice-free MMI, and the searches by the GMM-HMM."""
    plain = config("children")
    machines = Machines(cores=1)
    rows = by_stage(cost(plain, machines, train=1, test=1))
    stage = rows["train single-lfmmi"]
    frames = 360_000 * 2 * 3  # two epochs, three tempos
    network = rows["train single"].core_hours * 2 * 3 / (5 * 6)
    assert stage.core_hours == pytest.approx(network + frames * LFMMI / 3600, rel=1e-6)
    update = {"decoding": plain.decoding.model_copy(update={"gmm": False})}
    without = by_stage(cost(plain.model_copy(update=update), machines, train=1, test=1))
    adapted = rows["decoding"].core_hours - without["decoding"].core_hours
    assert adapted == pytest.approx(SEARCH)  # the row; transforms are the network's, too
    features = plain.features.model_copy(update={"input": ["logmel"]})
    bare = plain.model_copy(update={**update, "features": features})
    searched = by_stage(cost(bare, machines, train=1, test=1))["decoding"].core_hours
    assert without["decoding"].core_hours > searched + 1.9 * SEARCH


def test_each_set_of_a_data_directory_counts_as_what_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Train is trained on, whatever its share; two parts of one folder are not the folder twice."""
    for name, ends in (("train", (1800, 1800)), ("dev", (900,)), ("eval", (360, 3600, 7200))):
        (folder := tmp_path / name).mkdir()
        made = [f"{'sw' if end > 1000 else 'en'}_{i}" for i, end in enumerate(ends)]
        for table, line in (
            ("wav.scp", "{} {}.wav"), ("utt2spk", "{} {}"), ("text", "{} word {}"),
            ("segments", "{} {} 0 "),
        ):  # fmt: skip
            rows = [line.format(key, key) for key in made]
            if table == "segments":
                rows = [row + str(end) for row, end in zip(rows, ends, strict=True)]
            (folder / table).write_text("".join(f"{row}\n" for row in rows))
    parts = {
        part: {"data": str(tmp_path / "eval"), "recordings": f"{part}_*"} for part in ("sw", "en")
    }
    file = of_directories(tmp_path, tests=parts)
    assert main(["cost", "--config", str(file)]) == 0
    told = "1 hours of training speech, 3.35 to decode (the data's durations)"
    assert capsys.readouterr().out.startswith(told)


@pytest.mark.parametrize(
    ("record", "change", "told"),
    [
        ({"train": 6.0, "dev": 0.5, "test": 0.25}, {}, "6 hours of training speech, 0.75 to"),
        (10.0, {}, "8 hours of training speech, 2 to"),  # before, one number of all sets
        # the record is of whole folders that init made, no others
        ({"train": 6.0, "dev": 0.5, "test": 0.25}, {"recordings": ["a*"]}, "0.5 hours of train"),
        ({"train": 6.0, "dev": 0.5, "test": 0.25}, {"data": "other"}, "0.25 hours of train"),
    ],
)
def test_what_init_wrote_down(
    record: object,
    change: dict[str, object],
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, lines in (("train", "a 1800\nb 900\n"), ("dev", "a 1\n"), ("test", "a 1\n"),
                        ("other", "a 900\n")):  # fmt: skip
        (folder := tmp_path / name).mkdir()
        (folder / "utt2dur").write_text(lines)
        keys = [line.split()[0] for line in lines.splitlines()]
        for table in ("wav.scp", "utt2spk", "text"):
            (folder / table).write_text("".join(f"{key} {key}\n" for key in keys))
    (tmp_path / "init.json").write_text(json.dumps({"hours": record}))
    changed = {**change, "data": str(tmp_path / str(change.get("data", "train")))}
    file = of_directories(tmp_path, train=changed)
    assert main(["cost", "--config", str(file)]) == 0
    assert capsys.readouterr().out.startswith(told)


@pytest.mark.parametrize(("name", "train"), [("demo", 0.5), ("swb300", 300.0), ("swb2000", 2000.0)])
def test_hours_of_configs_that_come_along(name: str, train: float) -> None:
    speech = amounts(config(name))
    assert speech is not None and speech.train == train and 0 < speech.test < 10


def test_a_dry_run_tells(tmp_path: Path) -> None:
    """Once, beside the number of jobs."""
    ran = subprocess.run(
        [str(BIN / "snakemake"), "-n", "--quiet", "rules", "--profile", "local", "--configfile",
         "config/tiny.yaml", "--config", f"results={tmp_path}/results"],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    told = re.findall(r"about (\S+) GiB of disk and (\S+) hours of a core", ran.stdout + ran.stderr)
    tiny = config("tiny")
    speech = amounts(tiny)
    assert speech is not None
    rows = cost(tiny, Machines(cores=1), train=speech.train, test=speech.test)
    gib = disk(tiny, train=speech.train) / 2**30
    assert told == [(shown(gib), shown(total(rows).core_hours))]


def test_jobs_ask_for_what_their_hours_need() -> None:
    """Three times the line that was measured, and never less than before; more at each attempt."""
    wildcards = {"set": "train", "stream": "logmel"}  # as Snakemake's, as far as they are used
    for name, hours in (("demo", 0.5), ("swb300", 300.0)):
        asks = StageNeeds(config(name))
        for stage, least in (("egs.{set}", 120), ("features.{stream}.{set}", 120), ("mono", 240)):
            piece = measured().stages[stage.format(**wildcards)]
            seconds = piece.seconds(hours)  # no stage of these has more Gaussians than measured
            minutes = max(least, math.ceil(3 * seconds / 60 / 2))
            assert asks.minutes(stage, least)(wildcards, attempt=1, threads=2) == minutes
            assert asks.minutes(stage, least)(wildcards, attempt=3, threads=2) == 3 * minutes
    assert asks.minutes("egs.{set}", 7)({"set": "swb"}, 1, 2) == 7


def test_memory_follows_the_gaussians() -> None:
    """Kept once by each process and twice by the parent, as many as have shares at most."""
    swb = config("swb300")
    more = swb.alignment.sat.gaussians - measured().gaussians["sat"]  # type: ignore[union-attr]
    statistics = Statistics.zeros(gaussians=1000, dim=40, num_ids=0)
    arrays = (statistics.occupancy, statistics.first, statistics.second)
    each = more * sum(array.nbytes for array in arrays) / 1000
    for threads, held in ((1, 3), (16, 18), (200, SHARES + 2)):
        asked = StageNeeds(swb).megabytes("sat", 4000)({}, attempt=2, threads=threads)
        assert asked == 2 * (4000 + math.ceil(held * each / 1e6))
        row = by_stage(cost(swb, Machines(cores=threads), train=300, test=9))["alignment"]
        assert row.gib == pytest.approx(measured().stages["sat"].mib / 1024 + held * each / 2**30)
    assert StageNeeds(config("demo")).megabytes("mono", 4000)({}, attempt=1, threads=2) == 4000
