"""Curves of training and the staleness of every edge, as the report draws them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tracking_data import (
    RUNS,
    write_results,
)

from hadpsgd.config import Config, run_key
from hadpsgd.reports import (
    curves,
    staleness,
)
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
