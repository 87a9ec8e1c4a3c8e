"""Numbers of commands that nobody can mean: one line, before anything is read or computed."""

from __future__ import annotations

import argparse
import importlib

import pytest

from hadpsgd.cli import SCRIPT, STAGES, USER_ERROR, main

NEEDED = {
    "adapt": ["--config", "c", "--model", "m", "--lattices", "l", "--data", "d", "--feats", "f"],
    "nbest": ["--config", "c", "--decode", "d", "--data", "d", "--tuned", "t", "--out", "o"],
    "model-info": ["--config", "c"],
    "watch": ["--out", "o"],
    "validate": ["d"],
    "cost": ["--config", "c"],
    "images": ["d", "--out", "o"],
}


@pytest.mark.parametrize(
    ("stage", "option", "value"),
    [
        ("topology", "--learners", "100000"),
        ("topology", "--learners", "9" * 5000),
        ("topology", "--target", "1e-300"),
        ("topology", "--target", "nan"),
        ("topology", "--show", "-1"),
        ("topology", "--rounds", "1000000000"),
        ("model-info", "--num-pdfs", "-1"),
        ("model-info", "--input-dim", "many"),
        ("nbest", "--count", "99999999999999999999"),
        ("adapt", "--acoustic-scale", "0"),
        ("beam-curve", "--beams", "nan"),
        ("beam-curve", "--beams", "1e30"),
        ("watch", "--seconds", "-1"),
        ("validate", "--sample-rate", "-8000"),
        ("validate", "--threads", "1000000000"),
        ("lm", "--memory", "-5"),
        ("doctor", "--hours", "inf"),
        ("error-analysis", "--audio-minutes", "nan"),
        ("launch", "--learners", "0"),
        ("cost", "--hours-of-speech", "inf"),
        ("cost", "--gpu-price", "nan"),
        ("plan", "--compute", "1e18"),
        ("plan", "--nodes", "1.5"),
        ("images", "--base-rate", "inf"),
        ("images", "--milestones", "nan"),
    ],
)
def test_one_line_for_a_number_that_cannot_be_meant(
    stage: str, option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [option, value] if stage == "launch" else [f"{option}={value}"]
    assert main([stage, *arguments, *NEEDED.get(stage, [])]) == USER_ERROR
    said = capsys.readouterr().err
    assert said.startswith(f"hadpsgd {stage}: error: {option} is a ") and said.count("\n") == 1
    assert len(said) < 150


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--learners", "1000000000", "--learners is a whole number from 1 to 4096"),
        ("--batch", "1000000000", "--batch is a whole number from 1 to 100000"),
        ("--deviation", "1000000", "--deviation is a number from 0 to 100"),
        ("--seconds", "1000000000", "3.2e+10 gradients: this takes years"),
    ],
)
def test_a_simulation_without_end(
    option: str, value: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", option, value]) == USER_ERROR
    found = capsys.readouterr().err
    assert said in found and found.count("\n") == 1


@pytest.mark.parametrize("stage", [*STAGES, "launch-script"])
def test_every_number_has_bounds(stage: str) -> None:
    """A new option cannot be left out."""
    parser = argparse.ArgumentParser()
    importlib.import_module(STAGES[stage][0] if stage in STAGES else SCRIPT).configure(parser)
    assert not [a.option_strings for a in parser._actions if a.type in (int, float)]
