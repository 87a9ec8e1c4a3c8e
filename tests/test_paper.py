"""`hadpsgd paper`: cells and sentences from runs in MLflow, against numbers made up here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
from tracking_data import make_config, write_config, write_rows, write_scores

from hadpsgd.cli import main
from hadpsgd.config import Config, load, run_key, settings_of
from hadpsgd.config.training import Run
from hadpsgd.paper import batches, cells, command, noise
from hadpsgd.planning.papers import figures
from hadpsgd.starting import default_config
from hadpsgd.tracking.store import StoredRun
from hadpsgd.tracking.sync import sync
from hadpsgd.training.probe import PREFIX, Landscape

ROOT = Path(__file__).resolve().parents[1]
EPOCHS = 3
VIRTUAL = {"launcher": "virtual", "learners": 4}
TRAINING: dict[str, Any] = {
    "epochs": EPOCHS,
    "batch": 16,
    "seeds": [1, 2],
    "learning_rate": {"base": 0.1, "base_batch": 16},
    "runs": [{"strategy": "single"}],
    "grids": [
        {
            "part": "batch",
            "run": VIRTUAL,
            "over": {
                "strategy": ["ssgd", "adpsgd"],
                "batch": [32, 96],
                "learning_rate.base": [0.1, 0.2],
            },
        },
        {
            "part": "learners",
            "run": {"launcher": "virtual", "batch": 32},
            "over": {"strategy": ["adpsgd", "rand"], "learners": [4, 16]},
        },
        {
            "part": "stragglers",
            "run": VIRTUAL | {"batch": 32},
            "over": {"strategy": ["ssgd", "adpsgd"], "injected.slow_learners": [{}, {1: 5.0}]},
        },
        {
            "part": "why",
            "run": VIRTUAL | {"probe": True},
            "over": {"strategy": ["ssgd", "adpsgd"], "batch": [32, 96]},
        },
        {
            "part": "tried",
            "run": VIRTUAL | {"batch": 96, "momentum": 0.0},
            "over": {"strategy": ["ssgd", "adpsgd"], "model.layers": [1, 2]},
        },
    ],
}


def loss(config: Config, run: Run) -> float | None:
    """Held-out loss at the end of a run, by its settings; None where it diverges."""
    training = settings_of(config, run.id).training
    rate = training.learning_rate.base
    if training.momentum == 0.0:  # as good as the other; without a second layer none ends
        return 1.2 if settings_of(config, run.id).model.layers == 2 else None
    wide = training.batch == 96
    if run.strategy == "ssgd" and wide:
        return None if rate == 0.2 else 1.3  # 30 % above the baseline
    found = 1.0 + 0.01 * (training.seed or 0) + (0.02 if wide else 0.0)
    found += 0.1 if rate == 0.2 else 0.0
    found += 0.2 if run.strategy == "adpsgd" and run.learners == 16 else 0.0
    return found + (0.03 if run.injected.slow_learners else 0.0)


def seconds(run: Run) -> float:
    """Of virtual time."""
    slow = bool(run.injected.slow_learners)
    return 3600.0 * ((5.0 if run.strategy == "ssgd" else 1.25) if slow else 1.0)


def landscape(run: Run, epoch: int) -> dict[str, float]:
    """Of ADPSGD the noise grows with the curvature, and of both the effective rate falls."""
    if not run.probe:
        return {}
    noise = {"probe_difference_noise": 0.0}
    if run.strategy == "adpsgd":
        noise = {"probe_difference_noise": 0.3 * epoch, "probe_noise_per_distance": 2.0 / epoch}
    return noise | {
        "probe_minibatch_noise": 0.5,
        "probe_effective_rate": 1.0 - 0.1 * epoch,
        "probe_sharpness": 10.0 * epoch + (run.seed or 0),
    }


def write_run(config: Config, run: Run) -> None:
    """runs/<key>/ as training leaves it."""
    folder = Path(config.results) / config.name / "runs" / run_key(config, run.id)
    end = loss(config, run)
    rows = [
        {
            "step": 10 * epoch,
            "epoch": float(epoch),
            "heldout_loss": (end or 1.0) * (2.5 - epoch / EPOCHS),  # of the learners' own weights
            "virtual_seconds": seconds(run) * epoch / EPOCHS,
            "distance_from_mean": 0.03 if run.strategy == "adpsgd" else 0.01,
            **landscape(run, epoch),
            "time": 1_790_000_000.0 + epoch,
        }
        for epoch in range(1, EPOCHS + 1)
    ]
    write_rows(folder / "metrics.jsonl", rows)
    summary: dict[str, Any] = {"epochs": EPOCHS}
    summary |= {"diverged": "loss is NaN"} if end is None else {"heldout_loss": end}
    (folder / "summary.json").write_text(json.dumps(summary))


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Trained, the baseline decoded, all in MLflow."""
    folder = tmp_path_factory.mktemp("paper")
    made = make_config(folder, training=TRAINING)
    write_config(made, folder / "paper.yaml")
    for run in made.training.members:
        write_run(made, run)
    errors = {"dev": (30, 5, 10), "swb": (40, 8, 12), "ch": (90, 20, 40)}
    for run in [run for run in made.training.members if run.decode]:
        write_scores(made, run.id, errors)
    sync(made, None)
    return made


@pytest.fixture(scope="module")
def page(config: Config) -> Path:
    """The page; its pictures lie in the folder beside it."""
    file = Path(config.results) / "paper.html"
    assert make(config, file) == 0
    return file


def make(config: Config, page: Path) -> int:
    folder = page.with_suffix("")
    source = Path(config.results) / "paper.yaml"
    return main(["paper", "--config", str(source), "--out", str(page), "--pictures", str(folder)])


def part(page: Path, title: str) -> dict[str, Any]:
    found = json.loads((page.with_suffix("") / command.CELLS).read_text())
    return next(each for each in found if each["title"] == title)


def test_the_largest_batch_that_converges(page: Path) -> None:
    """With SSGD 32, with ADPSGD 96: three times as far, with the rule and with tuned rates."""
    found = part(page, "Batch")
    rows = found["tables"][0]["rows"]
    limits = {row[0]["text"]: [cell["text"] for cell in row[1:]] for row in rows}
    assert limits["ssgd"][:4] == ["32", "1", "32", "1"]
    assert limits["adpsgd"][:4] == ["96", "3", "96", "3"]
    assert limits["adpsgd"][4:] == ["12,288 (S)", "3 (H)"] and limits["ssgd"][4] == "4,096 (S)"
    notes = [row[1]["note"] for row in rows]
    assert notes == ["", "the largest tried"]
    assert [("at least 3 times" in said, "the claim holds" in said) for said in found["found"]] == [
        (True, True),
        (True, True),
    ]


def test_without_a_difference_the_page_says_so(config: Config) -> None:
    """The same batch for both: the data decide the sentence, not the claim."""
    rows = cells.read(config)
    small = [rows[name] for name in config.training.parts()["batch"] if "batch32" in name]
    section = batches.section(small, rows["single"], ["swb"])
    assert len(section.found) == 2
    assert all("cannot be seen here" in said for said in section.found)


def test_a_cell_is_the_mean_over_seeds_with_students_interval(page: Path, config: Config) -> None:
    values = [loss(config, run) or 0.0 for run in config.training.rows["rand-16-virtual-batch32"]]
    low, high = scipy.stats.t.interval(0.95, 1, loc=np.mean(values), scale=scipy.stats.sem(values))
    rows = part(page, "Learners")["tables"][0]["rows"]
    row = next(row for row in rows if [cell["text"] for cell in row[:2]] == ["rand", "16"])
    assert row[3]["text"] == f"{np.mean(values):.3f}" and row[3]["kind"] == "virtual"
    assert row[3]["note"] == f"{low:.3f} .. {high:.3f}"
    assert len(row[3]["runs"]) == 2 and all(re.fullmatch("[0-9a-f]{32}", i) for i in row[3]["runs"])
    assert row[5] == {"text": "7.6 / 13.1", "kind": "paper", "note": "", "runs": []}
    assert row[6]["text"] == "0.0100"
    baseline = rows[0]
    assert baseline[3]["kind"] == "measured" and baseline[4]["text"] == "6.0 / 18.8"
    said = part(page, "Learners")["found"]
    assert any("At 16 learners rand" in text and "better than" in text for text in said)
    assert any("At 4 learners rand" in text and "no difference" in text for text in said)


def test_other_recipes_are_named_by_what_differs(page: Path) -> None:
    found = part(page, "Tried")
    rows = [[cell["text"] for cell in row] for row in found["tables"][0]["rows"]]
    assert rows == [
        ["the common one", "4", "96", "1.300", "1.035"],
        ["momentum 0.0", "4", "96", "diverged", "diverged"],
        ["layers 2, momentum 0.0", "4", "96", "1.200", "1.200"],
    ]
    assert found["found"] == [
        "adpsgd ends with a lower mean loss than SSGD in 1 of 3 recipes (the common one, batch 96, "
        "4 learners)."
    ]


def test_a_seed_that_diverges_is_told(page: Path) -> None:
    rows = part(page, "Batch")["tables"][1]["rows"]  # of the rule
    row = next(row for row in rows if [c["text"] for c in row[:3]] == ["ssgd", "4", "96"])
    assert row[4]["text"] == "1.300" and row[6]["text"] == "no"
    assert any("At batch 96" in said and "ssgd 0.6" in said for said in part(page, "Why")["found"])


def test_noise_is_beside_the_sharpness_by_epoch(page: Path) -> None:
    """First, middle, last: the mean over seeds; what equal weights do not have is a dash."""
    found = part(page, "Why")
    rows = {
        (row[0]["text"], row[2]["text"], row[4]["text"]): row[5:]
        for row in found["tables"][0]["rows"]
    }
    assert len(rows) == 2 * 2 * 3
    own = rows["adpsgd", "32", "2"]
    assert [cell["text"] for cell in own] == ["0.6", "1.2", "1", "0.8", "21.5"]
    assert own[4]["note"] == "15.1 .. 27.9" and len(own[4]["runs"]) == 2
    assert [cell["text"] for cell in rows["ssgd", "96", "3"]] == ["0", "0", "-", "0.7", "31.5"]
    together = {row[0]["text"]: [cell["text"] for cell in row[1:]] for row in
                found["tables"][1]["rows"]}  # fmt: skip
    assert together == {"ssgd": ["4", "-", "-", "-1.00"], "adpsgd": ["4", "1.00", "-1.00", "-1.00"]}
    said = [text for text in found["found"] if text.startswith("With adpsgd")]
    assert ["grows" in text for text in said] == [True, False, False]
    assert ["as the claim says" in text for text in said] == [True, False, True]
    [equal] = [text for text in found["found"] if text.startswith("With ssgd")]
    assert "shrinks with curvature here, though no weights differ" in equal
    assert "against the claim" in said[1] and "why-noise" in found["pictures"]


def test_a_correlation_that_chance_may_give_is_said_to_be_none() -> None:
    """The mean of Spearman's rho over runs, and Student's interval, by SciPy."""
    draws = np.random.default_rng(3)

    def run(name: str) -> cells.Trained:
        curves = {key: [(float(x), float(draws.random()) + 0.1) for x in range(8)]
                  for key in cells.LANDSCAPE}  # fmt: skip
        params = {"run.strategy": "adpsgd", "run.super_learner": "1"}
        stored = StoredRun(name="a", experiment="x", params=params, metrics={}, tags={})
        return cells.Trained(name, stored, curves)

    row = cells.Row("a", tuple(map(run, "abcd")))
    rhos = [
        scipy.stats.spearmanr(
            *([y for _, y in each.curves[key]] for key in ("probe_effective_rate", noise.SHARPNESS))
        ).statistic
        for each in row.runs
    ]
    assert noise.correlations([row], noise.RATE) == pytest.approx(rhos)
    low, high = scipy.stats.t.interval(0.95, 3, loc=np.mean(rhos), scale=scipy.stats.sem(rhos))
    assert low < 0 < high
    said = noise.found([row])[2]
    assert f"{np.mean(rhos):.2f} over 4 runs, {low:.2f} .. {high:.2f}" in said
    assert "cannot be told here" in said


def test_the_curves_have_the_names_that_training_gives_them() -> None:
    assert tuple(PREFIX + field.name for field in fields(Landscape)) == cells.LANDSCAPE


def test_stragglers_are_beside_the_model_of_time(page: Path) -> None:
    rows = part(page, "Stragglers")["tables"][0]["rows"]
    found = {(row[0]["text"], row[2]["text"]): [cell["text"] for cell in row[3:]] for row in rows}
    assert found["ssgd", "5x"][:3] == ["5.000", "5.00", "5.00"]
    # three of four learners and a fifth: 4 / 3.2
    assert found["adpsgd", "5x"][:3] == ["1.250", "1.25", "1.25"]
    assert found["adpsgd", "5x"][4] == f"{100 * 0.03 / 1.015:+.1f}"


def test_the_papers_hours_are_the_planners(page: Path) -> None:
    rows = part(page, "Time")["tables"][0]["rows"]
    assert [(row[3]["text"], row[3]["kind"]) for row in rows] == [
        (f"{figure.model:.2f} {figure.unit}", "modelled") for figure in figures()
    ]


def test_pictures_that_are_deleted_come_back_as_they_were(page: Path, config: Config) -> None:
    folder = page.with_suffix("")
    before = {file.name: file.read_bytes() for file in (*folder.iterdir(), page)}
    assert sum(name.endswith(".png") for name in before) >= 6
    for file in folder.glob("*.png"):
        file.unlink()
    assert make(config, page) == 0
    assert {file.name: file.read_bytes() for file in (*folder.iterdir(), page)} == before
    drawn = [each["pictures"] for each in json.loads((folder / command.CELLS).read_text())]
    drawn_of = set(config.training.rows) - set(config.training.parts()["tried"])
    stored = {run.id for name in drawn_of for run in cells.read(config)[name].runs}
    assert {i for pictures in drawn for ids in pictures.values() for i in ids} == stored


def test_a_run_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = make_config(tmp_path, training=TRAINING)
    write_config(other, tmp_path / "paper.yaml")
    assert make(other, tmp_path / "paper.html") == 2
    told = capsys.readouterr().err
    assert "36 runs are not in MLflow, single-s1 among them" in told and "Traceback" not in told


def test_the_target_decodes_what_the_config_says(tmp_path: Path) -> None:
    ran = subprocess.run(
        [str(Path(sys.executable).parent / "snakemake"), "--profile", "local", "-n", "--quiet",
         "rules", "--configfile", "config/paper_tiny.yaml", "--config", f"results={tmp_path}",
         "--", "paper"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    counts = dict(re.findall(r"^(\w+) +(\d+)$", ran.stdout + ran.stderr, re.MULTILINE))
    tiny = load(ROOT / "config/paper_tiny.yaml").training
    assert int(counts["train"]) == len(tiny.members)
    decoded = sum(run.decode for run in tiny.members)
    assert int(counts["decode"]) == 3 * decoded < 3 * len(tiny.members)
    assert "report" not in counts and counts["paper"] == "1"


def test_the_target_has_a_config_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["snakemake", "--profile", "local", "paper"])
    assert default_config() == "config/paper_quick.yaml" and (ROOT / default_config()).is_file()
    monkeypatch.setattr(sys, "argv", ["snakemake", "--profile", "local"])
    assert default_config() == "config/demo.yaml"
