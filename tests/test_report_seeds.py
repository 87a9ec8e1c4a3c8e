"""Runs of several seeds: one row with their mean, they themselves folded under it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from tracking_data import EPOCHS, WORDS, make_config, write_config, write_scores, write_training

from hadpsgd.cli import main
from hadpsgd.config import Config, run_key
from hadpsgd.reports import compare, curves, rows, significance, table
from hadpsgd.reports.command import write
from hadpsgd.reports.findings import Findings
from hadpsgd.tracking import scoring_run, training_run
from hadpsgd.tracking.results import read_results

ERRORS = {
    "plain-s1": {"dev": (30, 5, 10), "swb": (40, 8, 12), "ch": (90, 20, 40)},
    "plain-s2": {"dev": (32, 5, 10), "swb": (46, 8, 12), "ch": (92, 20, 40)},
    "plain-s3": {"dev": (35, 5, 10), "swb": (43, 8, 12), "ch": (99, 20, 40)},
    "wide-s1": {"dev": (29, 5, 10), "swb": (31, 8, 12), "ch": (85, 20, 40)},
    "wide-s2": {"dev": (28, 5, 10), "swb": (35, 8, 12), "ch": (86, 20, 40)},
    "ssgd-2": {"dev": (31, 5, 10), "swb": (42, 8, 12), "ch": (92, 20, 40)},
}


def wers(row: str, name: str) -> list[float]:
    """Of a row's runs on a set, in percent."""
    return [100 * sum(e[name]) / WORDS[name] for run, e in ERRORS.items() if run.startswith(row)]


def mean_and_interval(rates: list[float]) -> tuple[float, float, float]:
    low, high = scipy.stats.t.interval(
        0.95, len(rates) - 1, loc=np.mean(rates), scale=scipy.stats.sem(rates)
    )
    return float(np.mean(rates)), float(low), float(high)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Finished: two rows of seeds and one of a single run."""
    training = {
        "epochs": EPOCHS,
        "batch": 64,
        "runs": [
            {"name": "plain", "seeds": [1, 2, 3]},
            {"name": "wide", "model": {"cells": 8}, "seeds": [1, 2]},
            {"strategy": "ssgd", "learners": 2},
        ],
    }
    made = make_config(tmp_path, training=training)
    write_config(made, tmp_path / made.name / "config.yaml")
    for run in made.training.members:
        write_training(made, run.id)
        write_scores(made, run.id, ERRORS[run.id])
    return made


def folded(config: Config) -> list[rows.ResultRow]:
    return rows.fold(config, rows.of_results(read_results(config), []))


def test_a_row_is_the_mean_with_students_interval(config: Config) -> None:
    made = folded(config)
    assert [row.label for row in made] == ["plain", "wide", "ssgd-2"]
    assert [[run.label for run in row.runs] for row in made] == [
        ["plain-s1", "plain-s2", "plain-s3"],
        ["wide-s1", "wide-s2"],
        ["ssgd-2"],
    ]
    lines = table.error_rates(config, made).rows
    for row, line in zip(("plain", "wide"), lines[:2], strict=True):
        for name, cell in zip(("dev", "swb", "ch"), line[4:7], strict=True):
            numbers = [float(number) for number in re.findall(r"[-\d.]*\d", cell)]
            assert numbers == pytest.approx(mean_and_interval(wers(row, name)), abs=0.0051)
    assert lines[2][4] == "5.11 % (46/900)"  # one run: its errors and words
    counted = table.counts(config, made).rows
    assert {line[0] for line in counted} == ERRORS.keys()


def test_the_table_folds_the_runs_under_their_row(config: Config) -> None:
    base = Path(config.results) / config.name
    write(Findings.of(config), base / "wer.md")
    text = (base / "wer.md").read_text()
    first, seeds = text.split("## Seeds")[0], text.split("## Seeds")[1].split("## Differences")[0]
    assert "| plain " in first and "plain-s1" not in first
    assert "plain: 3, wide: 2" in seeds and "plain-s3" in seeds and "ssgd-2" not in seeds
    assert "Student's t over seeds" in text
    page = (base / "report.html").read_text()
    under = page.split("<summary>plain: its runs</summary>")[1].split("</details>")[0]
    assert [f"plain-s{seed}" in under for seed in (1, 2, 3)] == [True] * 3
    assert "wide-s1" not in under and "plain-s1" not in page.split("<summary>")[0]
    mean, low, high = mean_and_interval(wers("plain", "swb"))
    assert f"{mean:.2f} %" in page and f"{low:.2f} .. {high:.2f}" in page
    assert page.count("mean of 3 seeds") == 3 and page.count("mean of 2 seeds") == 3


def test_rows_are_tested_with_all_their_runs(config: Config) -> None:
    tests = significance.of_config(config, read_results(config))
    pairs = {(pair["first"], pair["second"]): pair for pair in tests["swb"]["pairs"]}
    assert pairs.keys() == {("plain", "wide"), ("plain", "ssgd-2"), ("wide", "ssgd-2")}
    pair = pairs["plain", "wide"]
    difference = np.mean(wers("plain", "swb")) - np.mean(wers("wide", "swb"))
    assert pair["difference"] == pytest.approx(difference, abs=6e-4)
    welch = scipy.stats.ttest_ind(wers("plain", "swb"), wers("wide", "swb"), equal_var=False)
    assert pair["p_seeds"] == pytest.approx(welch.pvalue, abs=6e-6)
    labels = significance.labels(config, read_results(config))
    lines = significance.table(labels, tests).rows
    assert [line[0] for line in lines] == ["wide", "ssgd-2"]
    assert f"over seeds {welch.pvalue:.3f}" in lines[0][1] and "over seeds" not in lines[1][1]


def test_a_run_without_a_score_is_left_out_of_the_mean_and_said(config: Config) -> None:
    base = Path(config.results) / config.name
    key = run_key(config, "plain-s2")
    shutil.rmtree(base / "score" / key)
    (base / "runs" / key / "summary.json").write_text(json.dumps({"diverged": "at step 3"}))
    made = folded(config)
    cells = table.error_rates(config, made).rows[0]
    rates = [rate for i, rate in enumerate(wers("plain", "swb")) if i != 1]
    mean, low, high = mean_and_interval(rates)
    assert cells[5] == f"{mean:.2f} % ({low:.2f} .. {high:.2f}), 2 of 3"
    assert "- plain-s2 diverged: at step 3" in table.explanations(made)


def test_compare_shows_rows_and_their_runs(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(config.results) / config.name / "config.yaml"
    assert main(["compare", "--config", str(file)]) == 0
    out = capsys.readouterr().out
    assert "plain-s1" not in out and "training.seed" in out and "1, 2, 3" in out
    mean, low, high = mean_and_interval(wers("plain", "swb"))
    assert f"{mean:.2f} % ({low:.2f} .. {high:.2f})" in out and "over seeds" in out
    assert main(["compare", "--config", str(file), "plain-s1", "plain-s2"]) == 0
    out = capsys.readouterr().out
    assert "plain-s1" in out and "model.cells" not in out and "training.seed" in out
    assert main(["compare", "--config", str(file), "wide"]) == 0  # its runs
    assert "wide-s2" in capsys.readouterr().out
    assert [run.label for run in compare.find("demo/", config)] == ["plain", "wide", "ssgd-2"]


def test_curves_of_a_row_have_one_colour_and_one_name(config: Config) -> None:
    axis, _ = curves.losses(read_results(config)).axes
    legend = axis.get_legend()
    assert legend is not None
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["plain", "wide", "ssgd-2"]
    heldout = [line for line in axis.lines if line.get_marker() == "o"]
    assert len(heldout) == len(ERRORS)
    assert len({line.get_color() for line in heldout}) == 3


def test_the_store_groups_the_runs_by_their_row(config: Config) -> None:
    """Tags to group by; of the row its mean and interval at each of its runs."""
    tags = {run: training_run.tags(config, run) for run in ERRORS}
    assert {run: tag["row"] for run, tag in tags.items()} == {
        run: run.rpartition("-s")[0] if "-s" in run else run for run in ERRORS
    }
    assert [tags[f"plain-s{seed}"]["seed"] for seed in (1, 2, 3)] == ["1", "2", "3"]
    tests = significance.of_config(config, read_results(config))
    for run in ("plain-s1", "plain-s3"):
        values = scoring_run.tested(tests, run).values
        told = [float(part) for part in re.findall(r"\d+\.\d+", values["seeds.swb"])]
        assert told == pytest.approx(mean_and_interval(wers("plain", "swb")), abs=6e-4)
        assert float(values["interval.swb"].split()[0]) < wers("plain", "swb")[int(run[-1]) - 1]
    assert " from plain, p " in scoring_run.tested(tests, "wide-s2").values["difference.swb"]
