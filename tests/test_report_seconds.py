"""Loss against seconds, and runs that are trained and not decoded: tables, picture, MLflow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tracking_data import EPOCHS, RUNS, UPDATES, make_config, metric_rows, write_rows, write_scores

from hadpsgd import cli
from hadpsgd.config import Config, load, run_fingerprint, run_key
from hadpsgd.config.command import resolved
from hadpsgd.reports import html, rows, seconds, table
from hadpsgd.reports.command import write
from hadpsgd.reports.findings import Findings
from hadpsgd.reports.seconds import spent
from hadpsgd.tracking.results import State, read_results
from hadpsgd.tracking.sync import sync
from hadpsgd.training import final
from hadpsgd.training.loop import stopwatch
from hadpsgd.training.metrics import Metrics

ROOT = Path(__file__).resolve().parents[1]
SLOW = {"ssgd-slow": ("ssgd", 5.0), "adpsgd-slow": ("adpsgd", 1.25)}
"""Strategy, and seconds of an update with one of four learners five times slower."""


def slow_run(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "strategy": SLOW[name][0],
        "learners": 4,
        "launcher": "virtual",
        "decode": False,
        "injected": {"slow_learners": {3: 5.0}},
        **changes,
    }


@pytest.fixture
def config(mlflow_folder: Path) -> Config:
    """A run of processes, scored; two in virtual time, trained alone."""
    training = {
        "epochs": EPOCHS,
        "runs": [{"strategy": "single"}, *map(slow_run, SLOW)],
    }
    config = make_config(mlflow_folder, training=training)
    for name in ("single", *SLOW):
        folder = mlflow_folder / "demo/runs" / run_key(config, name)
        pace = SLOW.get(name, ("", 0.5))[1]
        clock = "virtual_seconds" if name in SLOW else "seconds"
        write_rows(
            folder / "metrics.jsonl",
            [row | {clock: pace * row["step"]} for row in metric_rows(name)],
        )
        total = {"virtual_seconds": pace * EPOCHS * UPDATES} if name in SLOW else {}
        summary = {"seconds": 7.0, "heldout_loss": 1.25, **total}
        (folder / "summary.json").write_text(json.dumps(summary))
    write_scores(config, "single", {"dev": (30, 5, 10), "swb": (40, 8, 12), "ch": (90, 20, 40)})
    (mlflow_folder / "demo/config.yaml").write_text(resolved(config))
    return config


def test_the_table_has_the_time_of_training_and_says_what_is_not_decoded(config: Config) -> None:
    found = rows.of_results(read_results(config), [])
    assert [row.state for row in found] == [State.FINISHED] * 3
    shown = table.error_rates(config, found)
    assert [line[3] for line in shown.rows] == ["40 s", "400 virtual s", "100 virtual s"]
    assert [line[4:7] for line in shown.rows[1:]] == [["not decoded"] * 3] * 2
    assert "5.00 % (45/900)" in shown.rows[0]
    page = html.page(Findings.of(config))
    assert page.count("not decoded</td>") == 2
    assert '<td class="short">400 virtual s</td>' in page


def test_one_panel_for_each_kind_of_time(config: Config) -> None:
    results = read_results(config)
    measured, virtual = seconds.figure(results).axes
    assert measured.get_xlabel() == "measured seconds of training"
    assert virtual.get_xlabel() == "virtual seconds of training"
    assert measured.get_title(loc="left") == "loss; no learner slowed"
    assert virtual.get_title(loc="left") == "loss; learner 3 is 5 times slower"
    lines = {str(line.get_label()): line for line in [*measured.lines, *virtual.lines]}
    named = {"single", "ssgd-slow: all wait for it", "adpsgd-slow: nobody waits for it"}
    assert {label for label in lines if not label.startswith("_")} == named
    for result in results:
        line = next(line for label, line in lines.items() if label.startswith(result.row))
        pace = SLOW.get(result.row, ("", 0.5))[1]
        wanted = [
            (pace * row["step"], row["heldout_loss"])
            for row in metric_rows(result.row)
            if "heldout_loss" in row
        ]
        assert np.array_equal(line.get_xydata(), wanted)
    assert len({line.get_color() for line in lines.values()}) == 3


def test_a_line_in_words_for_every_run_with_a_slow_learner(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    waits, waits_not = seconds.explanations(read_results(config)).splitlines()
    assert waits.startswith(
        "- ssgd-slow: learner 3 is 5 times slower, on purpose; the learners wait"
    )
    assert "400 virtual seconds, held-out loss 1.250" in waits
    assert "adpsgd-slow" in waits_not and "do not wait" in waits_not and "100 virtual" in waits_not
    file = str(Path(config.results) / "demo/config.yaml")
    out = Path(config.results) / "demo/wer.md"
    write(Findings.of(config), out)
    assert f"{waits}\n{waits_not}\n" in out.read_text()
    assert cli.main(["report", "--config", file, "--show"]) == 0
    assert f"{waits}\n{waits_not}\n" in capsys.readouterr().out
    assert "5 times slower, on purpose" in html.page(Findings.of(config))


def test_nothing_slowed_nothing_said(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    for name in RUNS:  # rows of before they had seconds
        write_rows(
            tmp_path / "demo/runs" / run_key(config, name) / "metrics.jsonl", metric_rows(name)
        )
    results = read_results(config)
    assert seconds.explanations(results) == "" and [seconds.spent(r) for r in results] == [None] * 3
    [axis] = seconds.figure(results).axes
    assert not axis.lines and axis.get_title(loc="left") == "loss"


@pytest.mark.usefixtures("no_tracking_uri")
def test_what_is_not_decoded_is_tracked_without_a_scoring(config: Config) -> None:
    import mlflow

    sync(config, None)
    client = mlflow.MlflowClient(config.tracking.uri)
    experiment = client.get_experiment_by_name("demo")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    kinds = sorted((run.data.tags["run"], run.data.tags["kind"]) for run in runs)
    training = [(name, "training") for name in ("adpsgd-slow", "single", "ssgd-slow")]
    assert kinds == sorted([*training, ("single", "scoring")])
    told = {run.data.tags["run"]: run.data for run in runs if run.data.tags["kind"] == "training"}
    assert told["ssgd-slow"].tags["status"] == "finished"
    assert told["ssgd-slow"].metrics["epoch/virtual_seconds"] == 400.0
    assert told["single"].metrics["epoch/seconds"] == 40.0


def test_decoding_a_run_later_trains_nothing_again(tmp_path: Path) -> None:
    configs = [
        make_config(
            tmp_path, training={"epochs": 2, "runs": [slow_run("ssgd-slow", decode=decode)]}
        )
        for decode in (True, False)
    ]
    assert len({run_fingerprint(config, "ssgd-slow") for config in configs}) == 1


def test_seconds_of_earlier_attempts_count(tmp_path: Path) -> None:
    first = Metrics(tmp_path, rank=0, step=0)
    assert 0 <= stopwatch(first)()["seconds"] < 1000
    first.write(step=5, seconds=1000.0)
    first.write(step=9, seconds=9000.0)  # behind the checkpoint: done again
    first.close()
    again = stopwatch(Metrics(tmp_path, rank=0, step=5))
    assert 1000 <= again()["seconds"] <= again()["seconds"] < 9000


def test_the_summary_has_the_seconds_of_the_table(config: Config, tmp_path: Path) -> None:
    """Those of all attempts; without rows those of the last one."""
    result = read_results(config)[0]
    assert final.spent(result.folder, 7.0) == spent(result) != 7.0
    assert final.spent(tmp_path / "none", 7.0) == 7.0


def test_the_demo_shows_what_asynchrony_is_for() -> None:
    """Two runs that differ in nothing but whether learners wait; neither costs a decoding."""
    demo = load(ROOT / "config/demo.yaml").training.members
    slow = [run for run in demo if run.injected.slow_learners]
    assert [seconds.waits(run) for run in slow] == [True, False]
    assert not any(run.decode for run in slow) and all(run.simulated for run in slow)
    first, second = (run.model_dump(exclude={"name", "strategy"}) for run in slow)
    assert first == second
    assert len([run for run in demo if run.decode]) == 3
