"""`decoding.gmm`: the GMM-HMM of the alignment as a row beside the runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from small_workflow import BIN, ROOT
from tracking_data import RUNS, WORDS, make_config, scored, without_models, write_results

from hadpsgd.config import Config, check
from hadpsgd.errors import UserError
from hadpsgd.reports import compare, significance
from hadpsgd.reports.command import write
from hadpsgd.reports.findings import Findings
from hadpsgd.scoring import sentences
from hadpsgd.tracking.beside import read_beside
from hadpsgd.tracking.results import State
from hadpsgd.tracking.store import Store
from hadpsgd.tracking.sync import sync

ROW = "gmm-mono"
ERRORS = {"dev": (45, 10, 15), "swb": (60, 15, 20), "ch": (120, 30, 50)}
"""Of the row: substitutions, insertions, deletions."""


def planned(config: str, tmp_path: Path, *changes: str, **env: str) -> dict[str, int]:
    """Rules of a dry run and how often each."""
    ran = subprocess.run(
        [str(BIN / "snakemake"), "-n", "--profile", "local", "--configfile", config,
         "--quiet", "rules", "--config", f"results={tmp_path}", *changes],
        cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, **env},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    counts = re.findall(r"^(\w+) +(\d+)$", ran.stdout + ran.stderr, re.MULTILINE)
    return {rule: int(count) for rule, count in counts}


def test_speakers_are_adapted_for_the_gmm_alone(tmp_path: Path) -> None:
    """Without FMLLR in the network's input; one run of which all is scored, and the GMM."""
    found = planned(
        "config/tiny_full.yaml", tmp_path, "decoding={gmm: true}", "features={input: [logmel]}"
    )
    wanted = {"decode_first": 3, "adapt_first": 3, "decode_adapted": 3, "adapt": 3, "fmllr": 0,
              "decode_gmm": 3, "decode": 3, "tune": 2, "score": 6, "track": 1}  # fmt: skip
    assert {rule: found.get(rule, 0) for rule in wanted} == wanted


def test_the_children_are_planned(shared: Path, tmp_path: Path) -> None:
    if not (shared / "children").is_dir():
        pytest.skip(f"no corpus of children in {shared}")
    found = planned("config/children.yaml", tmp_path, HADPSGD_SHARED=str(shared.resolve()))
    wanted = {"sat": 1, "decode_gmm": 2, "fmllr": 3, "ivector_extract": 3, "train": 4, "decode": 8,
              "pronunciations": 1, "neural_lm": 1, "neural_lists": 10}  # fmt: skip
    assert {rule: found.get(rule, 0) for rule in wanted} == wanted


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"alignment": {"kind": "kaldi", "ali_dir": "ali", "lang_dir": "lang"}},
            "decoding.gmm: Kaldi's GMM is not decoded",
        ),
        ({"training": {"runs": [{"name": ROW}]}}, f"'{ROW}' is the row of decoding.gmm"),
    ],
)
def test_what_has_no_row_of_its_own_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=re.escape(told)):
        check({"name": "x", "corpus": {"kind": "an4"}, "decoding": {"gmm": True}} | changes, "x")


def finished(results: Path) -> Config:
    """A results folder with the GMM's scores."""
    config = write_results(results)
    config = make_config(results, decoding={"gmm": True})
    out = results / config.name
    (out / "ali/train").mkdir(parents=True)
    (out / "score" / ROW).mkdir()
    tuned = {"lm_weight": 12.0, "word_penalty": 0.5}
    (out / "score" / ROW / "tuned.json").write_text(json.dumps(tuned))
    for name, (sub, ins, dele) in ERRORS.items():
        folder = out / "score" / ROW / name
        folder.mkdir(parents=True)
        counts = {"words": WORDS[name], "sub": sub, "ins": ins, "del": dele, "sentences": 100}
        (folder / "wer.json").write_text(json.dumps(counts))
        sentences.write(folder / sentences.FILE, scored(WORDS[name], sub, ins, dele))
    return config


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_it_is_a_row_of_every_table(tmp_path: Path) -> None:
    config = finished(tmp_path)
    found = Findings.of(config)
    assert [row.label for row in found.rows] == [*RUNS, ROW]
    write(found, tmp_path / "demo/wer.md")
    lines = (tmp_path / "demo/wer.md").read_text().splitlines()
    row, minus, *_ = (cells(line) for line in lines if line.startswith(f"| {ROW} "))
    assert row[:7] == [ROW, "-", "-", "-", "7.78 % (70/900)", "9.50 % (95/1000)",
                       "25.00 % (200/800)"]  # fmt: skip
    assert row[7:] == ["12", "0.5", "not uploaded"]
    assert minus[1].startswith("+3.50 (")  # less the first run's 6.00
    page = (tmp_path / "demo/report.html").read_text()
    assert (
        f'<th scope="row">{ROW}<small>-</small><small>MLflow <code>not uploaded</code></small></th>'
        '<td>-</td><td class="short">-</td>'
    ) in page
    assert page.count("9.50 %") == 1 and "What differs between the runs" in page
    tests = json.loads((tmp_path / "demo" / significance.FILE).read_text())
    assert list(tests["swb"]["runs"]) == [*RUNS, ROW]
    shown = compare.page([*compare.find("single", config), *compare.find(ROW, config)])
    assert "9.50 % (95/1000)" in shown and "No setting differs" in shown


def test_scores_of_another_model_do_not_count(tmp_path: Path) -> None:
    config = finished(tmp_path)
    assert read_beside(config)[0].state is State.FINISHED
    [partly] = read_beside(config, [f"{ROW}/ch"])
    assert list(partly.scores) == ["dev", "swb"] and partly.state is State.UNFINISHED
    assert "not scored on ch" in partly.why
    newer = (tmp_path / "demo/score" / ROW / "ch/wer.json").stat().st_mtime + 10
    stamp = tmp_path / "demo/ali/train/.snakemake_timestamp"
    stamp.touch()
    os.utime(stamp, (newer, newer))
    [former] = read_beside(config)
    assert not former.scores and former.state is State.UNFINISHED


def test_mlflow_has_it_as_a_run_of_its_own(mlflow_folder: Path) -> None:
    config = without_models(finished(mlflow_folder))
    write(Findings.of(config), mlflow_folder / "demo/wer.md")
    tracked = sync(config, None)
    assert [each.run for each in tracked] == [*RUNS, ROW]
    assert sync(config, None) == tracked  # nothing new: nothing twice
    client = Store(config.tracking.uri, mlflow_folder / "tracking").client
    runs = client.search_runs([tracked[-1].mlflow_experiment], "tags.kind = 'gmm'")
    assert [run.info.run_id for run in runs] == [tracked[-1].mlflow_run]
    data = runs[0].data
    assert runs[0].info.status == "FINISHED" and runs[0].info.run_name == ROW
    assert set(data.metrics) == {"WER/dev", "WER/swb", "WER/ch"}
    assert data.metrics["WER/swb"] == pytest.approx(9.5)
    assert data.params["alignment.kind"] == "mono" and "model.layers" not in data.params
    assert data.params["tuned.lm_weight"] == "12.0"
    assert data.tags["difference.swb"].startswith("+3.500 from single") and data.tags["lock"]
    assert f"| {ROW} " in data.tags["mlflow.note.content"]
    assert Findings.of(config).rows[-1].mlflow == tracked[-1].mlflow_run
