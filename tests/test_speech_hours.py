"""`speech_hours`: sizes by hours of training speech, for the keys that a config leaves out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import yaml
from hypothesis import given
from hypothesis import strategies as st
from test_init_sizes import of

from hadpsgd import cli
from hadpsgd.config import Config, check, run_key
from hadpsgd.config.command import resolved
from hadpsgd.config.sizes import size_for
from hadpsgd.planning.amounts import amounts

BUILTIN = {"name": "x", "corpus": {"kind": "builtin"}}
SIZES = {
    "egs": ("frames", "shift", "tempos"),
    "model": ("layers", "cells", "projection", "dropout"),
    "training": ("epochs", "batch", "weight_decay", "learning_rate"),
}


def made(**content: Any) -> Config:
    return check({**BUILTIN, **content}, "x.yaml")


@pytest.mark.parametrize("hours", [0.02, 0.2, 0.3, 1.9, 5, 50, 300])
def test_they_are_those_that_init_writes(hours: float) -> None:
    config = made(speech_hours=hours)
    written = of(hours, 50_000)  # speakers with too little speech for sat
    for section, names in SIZES.items():
        for name in names:
            ours = getattr(getattr(config, section), name)
            assert ours == getattr(getattr(written, section), name), (section, name)
    assert config.corpus.speeds == written.corpus.speeds
    ours, theirs = (each.alignment.model_dump(mode="json") for each in (config, written))
    for name in ("max_failed", *(("lda_mllt", "sat") if hours >= 0.25 else ())):  # not trained
        del ours[name], theirs[name]
    assert ours == theirs


@given(
    hours=st.sampled_from([0.05, 0.2, 1.0, 5.0, 50.0, 500.0]),
    cells=st.none() | st.integers(1, 99),
    epochs=st.none() | st.integers(1, 99),
    frames=st.none() | st.integers(2, 99),
)
def test_keys_that_are_there_stay(
    hours: float, cells: int | None, epochs: int | None, frames: int | None
) -> None:
    wanted = {"model": {"cells": cells}, "training": {"epochs": epochs}, "egs": {"frames": frames}}
    given_ = {
        section: {name: value for name, value in keys.items() if value is not None}
        for section, keys in wanted.items()
    }
    before = yaml.safe_dump(given_)
    config, size = made(speech_hours=hours, **given_), size_for(hours)
    assert yaml.safe_dump(given_) == before
    assert config.model.cells == (cells or size.cells) and config.model.layers == size.layers
    assert config.training.epochs == (epochs or size.epochs)
    annealed = config.training.learning_rate.anneal_after
    assert annealed <= size.anneal_after
    if epochs:
        assert annealed <= epochs / 2
    if size.repeats:
        assert config.egs.shift == config.egs.frames // 2
    again = check(yaml.safe_load(resolved(config)), "resolved.yaml")
    assert again == config


def test_without_hours_nothing_changes_and_with_them_a_run_is_the_one_of_its_sizes() -> None:
    assert made().model.layers == 6 and made().speech_hours is None
    auto = made(speech_hours="auto")
    assert auto.speech_hours == 0.5 and auto.model.layers == 2 and auto.alignment.kind == "tri"
    spelled = yaml.safe_load(resolved(auto))
    del spelled["speech_hours"]
    assert run_key(check(spelled, "x.yaml"), "single") == run_key(auto, "single")


def test_kaldis_alignments_have_their_size() -> None:
    kaldi = {"kind": "kaldi", "ali_dir": "ali", "lang_dir": "lang"}
    config = made(speech_hours=1, alignment=kaldi)
    assert config.alignment.kind == "kaldi" and config.model.layers == 2


def directory(folder: Path, **files: str) -> dict[str, Any]:
    """A corpus whose training directory has these files besides those that it must have: the
    utterances a, b, and c in recordings of their names or, with segments, in r."""
    folder.mkdir(exist_ok=True)
    here = [name for name in "abc" if f"{name} " in files.get("segments", "a b c ")]
    recordings = "r" if "segments" in files else here
    files = {
        "utt2spk": "".join(f"{name} s\n" for name in here),
        "text": "".join(f"{name} word\n" for name in here),
        "wav_scp": "".join(f"{name} sph2pipe {name}.sph |\n" for name in recordings),
        **files,
    }
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    data = str(folder)
    sets = {"train": data, "dev": data, "tests": {"test": data}}
    return {"kind": "kaldi", **sets, "dict_dir": "lexicon.txt"}


@pytest.mark.parametrize(
    ("files", "seconds"),
    [
        ({"utt2dur": "a 3600\nb 1800\n", "segments": "a r 0 1\n"}, 5400),
        ({"segments": "a r 0 1800\nb r 1800 9000.5\n"}, 9000.5),
        ({"segments": "a r 10 1800 1\nb r 20 1800 2\n"}, 3570),  # with channels
        ({"segments": "a r 100 -1\n", "reco2dur": "r 3600\n"}, 3500),  # to the end
        ({"reco2dur": "a 7200\nb 1\nc 2\n"}, 7203),
    ],
)
def test_auto_measures_a_data_directory(
    files: dict[str, str], seconds: float, tmp_path: Path
) -> None:
    config = made(speech_hours="auto", corpus=directory(tmp_path / "train", **files))
    assert config.speech_hours == pytest.approx(seconds / 3600, abs=1e-6)
    assert config.model.layers == size_for(seconds / 3600).layers


@pytest.mark.parametrize("more", [{}, {"utt2dur": "a 30\nb 60\nc 7200\n"}])
def test_auto_measures_a_part(more: dict[str, str], tmp_path: Path) -> None:
    """Recordings that the wildcards leave out are not counted."""
    whole = directory(tmp_path / "train", reco2dur="a 30\nb 60\nc 7200\n", **more)
    part = {"data": str(tmp_path / "train"), "recordings": ["a", "b*"]}
    config = made(speech_hours="auto", corpus={**whole, "train": part})
    assert config.speech_hours == pytest.approx(90 / 3600, abs=1e-6)


def test_auto_reads_what_files_say_where_no_table_does(tmp_path: Path) -> None:
    for name, seconds in {"a": 90, "b": 30, "c": 5}.items():
        soundfile.write(tmp_path / f"{name}.wav", np.zeros(8000 * seconds, np.int16), 8000)
    places = "".join(f"{name} {tmp_path}/{name}.wav\n" for name in "abc")
    config = made(speech_hours="auto", corpus=directory(tmp_path / "train", wav_scp=places))
    assert config.speech_hours == pytest.approx(125 / 3600, abs=1e-6)
    assert config.training.epochs == size_for(125 / 3600).epochs


@pytest.mark.parametrize(
    ("files", "hours", "told"),
    [
        ({"segments": "a r 0 x\n"}, "auto", "segments: utterance 'a': "),
        ({"segments": "a r 10 5\n"}, "auto", "segments: utterance 'a': "),
        ({"utt2dur": "a\n"}, "auto", "utt2dur: a: '' is no number of seconds"),
        ({"utt2dur": "a 1 5\n"}, "auto", "utt2dur: a: '1 5' is no number of seconds"),
        ({"utt2dur": "a -5\nb 3605\n"}, "auto", "utt2dur: a: '-5' is no number of seconds"),
        ({"utt2dur": "a nan\n"}, "auto", "utt2dur: a: 'nan' is no number of seconds"),
        ({"reco2dur": "a inf\n"}, "auto", "reco2dur: a: 'inf' is no number of seconds"),
        ({"utt2dur": "a 0\n"}, "auto", "no speech in"),
        ({}, "auto", "has commands; make utt2dur or reco2dur, or give the number"),
        ({"reco2dur": "b 7200\n"}, "auto", "has commands"),
        ({"wav_scp": "a no.wav\nb no.wav\nc no.wav\n"}, "auto", "no.wav"),
        *(
            ({}, hours, f"a number above 0, or auto; not {hours}")
            for hours in (0, True, "many", float("nan"), float("inf"), [1])
        ),
        ({}, 10**400, "a number above 0, or auto; not 1000"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(
    files: dict[str, str],
    hours: Any,
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    content = {**BUILTIN, "speech_hours": hours, "corpus": directory(tmp_path / "train", **files)}
    assert_told(content, [f"{tmp_path}/x.yaml: speech_hours: ", told], tmp_path, capsys)


@pytest.mark.parametrize("folder", ["nowhere", "x" * 300])
def test_no_such_directory(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = {**directory(tmp_path / "train"), "train": str(tmp_path / folder)}
    content = {**BUILTIN, "speech_hours": "auto", "corpus": corpus}
    assert_told(content, [f"x.yaml: speech_hours: {tmp_path}/{folder}"], tmp_path, capsys)


def assert_told(
    content: dict[str, Any], told: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, and exit status 2."""
    file = folder / "x.yaml"
    file.write_text(yaml.safe_dump(content))
    assert cli.main(["config", str(file)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert [text for text in told if text not in line] == [] and len(line) < 1000


@pytest.mark.parametrize("given_", ["1e1", "10", 10, 10.0])
def test_numbers_may_be_text(given_: Any) -> None:
    config = made(speech_hours=given_, egs={"frames": "100"}, training={"epochs": "4"})
    assert config.speech_hours == 10 and config.model.layers == size_for(10).layers
    assert config.training.learning_rate.anneal_after == 2
    little = made(speech_hours=1, egs={"frames": "100"})
    assert little.egs.shift == 50


def test_features_of_kaldi_have_one_speed() -> None:
    features = {"input": ["fmllr"], "imports": {"fmllr": {"feats": "a"}}}
    assert made(speech_hours=0.1, features=features).corpus.speeds == [1.0]
    assert len(made(speech_hours=0.1).corpus.speeds) == 5


def test_faults_elsewhere_are_told_as_without_hours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for section in ("corpus", "alignment", "egs", "model", "training"):
        content = {**BUILTIN, "speech_hours": "auto", section: 3}
        assert_told(content, [section], tmp_path, capsys)
    for section, key, value in (
        ("egs", "frames", "x"),
        ("egs", "frames", -5),
        ("training", "epochs", -3),
    ):
        content = {**BUILTIN, "speech_hours": 1, section: {key: value}}
        assert_told(content, [f"'{section}.{key}'"], tmp_path, capsys)


def test_cost_and_doctor_take_them_where_the_data_do_not_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = {**BUILTIN, "speech_hours": 50, "corpus": directory(tmp_path / "train")}
    known = amounts(check(content, "x.yaml"))
    assert known and known.train == 50 and known.source.startswith("the config;")
    file = tmp_path / "x.yaml"
    file.write_text(yaml.safe_dump(content))
    cli.main(["doctor", "--config", str(file)])
    assert re.search(r"disk: .* about [0-9.,]+ GB needed", capsys.readouterr().out)
