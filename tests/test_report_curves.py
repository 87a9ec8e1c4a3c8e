"""Curves of training and the staleness of every edge, as the report draws them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tracking_data import RUNS, make_config, metric_rows, write_results, write_rows

from hadpsgd.config import Config, run_key
from hadpsgd.reports import curves, seconds, staleness
from hadpsgd.reports.command import write
from hadpsgd.reports.findings import Findings
from hadpsgd.tracking import edges
from hadpsgd.tracking.results import read_results


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return write_results(tmp_path)


def test_curves_are_the_recorded_ones(config: Config) -> None:
    results = read_results(config)
    axis, _ = curves.losses(results).axes
    lines = {line.get_label(): line for line in axis.lines}
    heldout = [row for row in results[2].metrics if "heldout_loss" in row]
    wanted = [[row["epoch"], row["heldout_loss"]] for row in heldout]
    assert np.asarray(lines["hadpsgd-2x2"].get_xydata(), float).tolist() == wanted
    [axis] = curves.learning_rates(config, results).axes
    assert (
        axis.lines[0].get_label() == "rule"
        and float(np.asarray(axis.lines[0].get_ydata(), float)[0]) == 0.025
    )


def with_lfmmi(folder: Path) -> Config:
    """The same trainings, each gone on with by lattice-free MMI."""
    config = make_config(folder)
    training = {**config.training.model_dump(mode="json"), "stages": [{"criterion": "lfmmi"}]}
    config = make_config(folder, training=training)
    for run in config.training.members:
        rows = metric_rows(run.id)
        if run.id.endswith("-lfmmi"):
            names = ("loss", "heldout_loss")
            rows = [{k: v - 4 if k in names else v for k, v in row.items()} for row in rows]
        timed = [row | {"seconds": float(row["step"])} for row in rows]
        write_rows(folder / "demo/runs" / run_key(config, run.id) / "metrics.jsonl", timed)
    return config


def test_losses_of_another_criterion_have_an_axis_of_their_own(tmp_path: Path) -> None:
    """They cannot be compared, and would press the others flat."""
    results = read_results(with_lfmmi(tmp_path))
    for picture in (curves.losses(results), seconds.figure(results)):
        first, other = picture.axes[:2]
        titles = [axis.get_title(loc="left") for axis in (first, other)]
        assert "MMI" not in titles[0] and "lattice-free MMI loss" in titles[1]
        for axis, end, low, high in ((first, "", 0, 4), (other, "-lfmmi", -4, 0)):
            heights = np.concatenate([np.asarray(line.get_ydata(), float) for line in axis.lines])
            assert len(axis.lines) == 2 * len(RUNS) and low < heights.min() < heights.max() < high
            labels = axis.get_legend_handles_labels()[1]
            assert axis.get_legend() and labels == [f"{name}{end}" for name in RUNS]
    *_, accuracy = curves.losses(results).axes
    assert len(accuracy.lines) == 2 * len(RUNS)
    assert accuracy.get_title(loc="left") == "held-out frame accuracy"


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=200))
@example([float(i) for i in range(61)])  # lists of that many are hardly ever drawn
@example([1.0] * 120)
def test_thinned_curve_keeps_the_mean(ys: list[float]) -> None:
    xs = [float(i) for i in range(len(ys))]
    few_x, few_y = curves.thinned(xs, ys)
    size = -(-len(ys) // 30)
    assert len(few_x) == len(few_y) <= 30
    weights = [min(size, len(ys) - i) for i in range(0, len(ys), size)]
    total = sum(w * y for w, y in zip(weights, few_y, strict=True))
    assert total == pytest.approx(sum(ys), abs=1e-9)


def test_training_without_curves_still_has_a_page(config: Config) -> None:
    for run in RUNS:
        Path(config.results, f"demo/runs/{run_key(config, run)}/metrics.jsonl").unlink()
    write(Findings.of(config), Path(config.results) / "demo/wer.md")
    assert "<svg" not in Path(config.results, "demo/report.html").read_text()


def test_staleness_of_every_edge_is_drawn(config: Config) -> None:
    results = read_results(config)
    assert staleness.figure(results) is None  # nobody has mixed
    folder = results[2].folder
    lines = {"": {1: {"-1": 2, "0": 1}}, ".rank1": {0: {"3": 4}}}
    for rank, lags in lines.items():
        for _ in range(2):  # two rows of a file add up
            with (folder / f"metrics{rank}.jsonl").open("a") as stream:
                print(json.dumps({"step": 1, "lag_counts": lags}), file=stream)
    counts = {(0, 1): Counter({-1: 4, 0: 2}), (1, 0): Counter({3: 8})}
    assert edges.read(folder) == counts
    span, shares = staleness.table(counts)
    assert span == [-1, 0, 1, 2, 3]
    np.testing.assert_allclose(shares[0], [2 / 3, 1 / 3, 0, 0, 0])
    assert shares[1].tolist() == [0, 0, 0, 0, 1]
    figure = staleness.figure(read_results(config))
    assert figure is not None
    [axis] = figure.axes
    assert axis.get_title(loc="left") == "hadpsgd-2x2"
    assert [label.get_text() for label in axis.get_yticklabels()] == ["0 ← 1", "1 ← 0"]
    write(Findings.of(config), Path(config.results) / "demo/wer.md")
    assert Path(config.results, "demo/report.html").read_text().count("<svg") == 3
