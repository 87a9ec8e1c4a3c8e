"""`speech_hours`: sizes by hours of training speech, for the keys that a config leaves out."""

from __future__ import annotations

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
    config, written = (
        made(speech_hours=hours),
        of(hours, 1000),
    )  # speakers of too little speech for sat
    for section, names in SIZES.items():
        for name in names:
            ours = getattr(getattr(config, section), name)
            assert ours == getattr(getattr(written, section), name), (section, name)
    assert config.corpus.speeds == written.corpus.speeds
    ours, theirs = (each.alignment.model_dump(mode="json") for each in (config, written))
    for name in ("max_failed", *(("lda_mllt", "sat") if hours >= 0.25 else ())):  # not trained
        ours.pop(name), theirs.pop(name)
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
        assert annealed <= max(epochs / 2, 0)
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
    """A corpus whose training directory has these files."""
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    data = str(folder)
    sets = {"train": data, "dev": data, "tests": {"test": data}}
    return {"kind": "kaldi", **sets, "dict_dir": "lexicon.txt"}


@pytest.mark.parametrize(
    ("files", "hours"),
    [
        ({"segments": "a r 0 1800\nb r 1800 9000.5\n", "utt2dur": "a 1\n"}, 2.5001),
        ({"utt2dur": "a 3600\nb 1800\n", "reco2dur": "r 1\n"}, 1.5),
        ({"reco2dur": "r 7200\n"}, 2.0),
    ],
)
def test_auto_measures_a_data_directory(
    files: dict[str, str], hours: float, tmp_path: Path
) -> None:
    config = made(speech_hours="auto", corpus=directory(tmp_path / "train", **files))
    assert config.speech_hours == hours and config.model.layers == size_for(hours).layers


def test_auto_reads_headers_where_no_file_tells_durations(tmp_path: Path) -> None:
    for name, seconds in {"a": 90, "b": 30}.items():
        soundfile.write(tmp_path / f"{name}.wav", np.zeros(8000 * seconds, np.int16), 8000)
    places = "".join(f"{name} {tmp_path}/{name}.wav\n" for name in "ab")
    config = made(speech_hours="auto", corpus=directory(tmp_path / "train", wav_scp=places))
    assert config.speech_hours == pytest.approx(120 / 3600, abs=1e-4)
    assert config.training.epochs == size_for(120 / 3600).epochs


@pytest.mark.parametrize(
    ("files", "hours", "told"),
    [
        ({"segments": "a r 0 x\n"}, "auto", "speech_hours: no seconds of a in "),
        ({"utt2dur": "a\n"}, "auto", "speech_hours: no seconds of a in "),
        ({"utt2dur": ""}, "auto", "speech_hours: a number above 0, or auto; not 0"),
        ({"wav_scp": "a sph2pipe a.sph |\n"}, "auto", "speech_hours: a in "),
        ({}, "auto", "wav.scp: cannot be read"),
        ({}, 0, "speech_hours: a number above 0, or auto; not 0"),
        ({}, True, "speech_hours: a number above 0, or auto; not True"),
        ({}, "many", "speech_hours: a number above 0, or auto; not 'many'"),
        ({}, float("nan"), "speech_hours: a number above 0, or auto; not nan"),
        ({}, float("inf"), "speech_hours: a number above 0, or auto; not inf"),
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
    file = tmp_path / "x.yaml"
    file.write_text(yaml.safe_dump(content))
    assert cli.main(["config", str(file)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert told in line


def test_faults_elsewhere_are_told_as_without_hours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.yaml"
    for section in ("corpus", "alignment", "egs", "model", "training"):
        content = {**BUILTIN, "speech_hours": "auto", section: 3}
        file.write_text(yaml.safe_dump(content))
        assert cli.main(["config", str(file)]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert section in line
    file.write_text(yaml.safe_dump({**BUILTIN, "speech_hours": 1, "egs": {"frames": "x"}}))
    assert cli.main(["config", str(file)]) == 2
    assert "egs.frames" in capsys.readouterr().err
