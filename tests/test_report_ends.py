"""Tables say where the fewest errors are at the last weight or penalty that is tried."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tracking_data import RUNS, write_results

from hadpsgd import cli
from hadpsgd.config import Config, run_key
from hadpsgd.reports.command import write
from hadpsgd.reports.findings import Findings
from hadpsgd.scoring.ends import ends

WEIGHTS, PENALTIES = (9.0, 10.0, 11.0), (0.0, 0.5)
FIRST = "the smallest one tried: try smaller ones"
LAST = "the largest one tried: try larger ones"
GRID = [(w, p) for w in WEIGHTS for p in PENALTIES]


def tuned(*best: tuple[float, float], more: Sequence[tuple[float, float]] = ()) -> dict[str, Any]:
    """Content of tuned.json: weight and penalty of the fewest errors; the choice is another."""
    tried = [
        {"lm_weight": w, "word_penalty": p, "errors": 20 if (w, p) in best else 22}
        for w, p in [*GRID, *more]
    ]
    return {"lm_weight": 10.0, "word_penalty": 0.25, "tried": tried}


def choose(
    config: Config, run: str, *best: tuple[float, float], more: Sequence[tuple[float, float]] = ()
) -> None:
    file = Path(config.results) / config.name / "score" / run_key(config, run) / "tuned.json"
    before = file.stat()
    file.write_text(json.dumps(tuned(*best, more=more)))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # older than the scores


@pytest.mark.parametrize(
    ("best", "wanted"),
    [
        ([(9.0, 0.0)], [f"scoring.lm_weights 9, {FIRST}", f"scoring.word_penalties 0, {FIRST}"]),
        ([(10.0, 0.5)], [f"scoring.word_penalties 0.5, {LAST}"]),
        ([(11.0, 0.25)], [f"scoring.lm_weights 11, {LAST}"]),
        ([(10.0, 0.25)], []),
        ([(10.0, 0.5), (11.0, 0.5)], [f"scoring.word_penalties 0.5, {LAST}"]),
        ([(9.0, 0.5), (11.0, 0.0)], []),  # equals at both ends
        ([(11.0, 0.5), (10.0, 0.25)], []),  # one of equals is inside
    ],
)
def test_the_ends_of_what_was_tried(best: list[tuple[float, float]], wanted: list[str]) -> None:
    assert ends(tuned(*best, more=[(10.0, 0.25), (11.0, 0.25)])) == wanted


def test_one_value_has_no_ends_and_an_old_file_none_either() -> None:
    chosen = {"lm_weight": 9.0, "word_penalty": 0.5}
    assert ends(chosen) == [] and ends({}) == []
    assert ends({**chosen, "tried": [{**chosen, "errors": 3}]}) == []


def test_every_table_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_results(tmp_path)
    inside = [(10.0, p) for p in (-1.0, 1.0)]
    for run in RUNS[:2]:
        choose(config, run, (11.0, 0.5), more=inside)
    choose(config, RUNS[2], (10.0, 0.5), more=inside)
    last = f"the fewest errors on dev are at scoring.lm_weights 11, {LAST}"
    said = f"{RUNS[0]}, {RUNS[1]}: {last}"
    found, out = Findings.of(config), tmp_path / "demo/wer.md"
    write(found, out)
    assert out.read_text().count("one tried") == 1 and f"\n- {said}\n" in out.read_text()
    page = (tmp_path / "demo/report.html").read_text()
    assert page.count("one tried") == 1 and f"<p>{said}.</p>" in page
    file = tmp_path / "c.yaml"
    file.write_text(json.dumps(config.model_dump(mode="json", exclude_unset=True)))
    assert cli.main(["report", "--config", str(file), "--show"]) == 0
    assert f"- {said}\n" in capsys.readouterr().out


def test_nothing_is_said_of_what_has_no_scores(tmp_path: Path) -> None:
    config = write_results(tmp_path)
    assert Findings.of(config).ends == []
    choose(config, RUNS[0], (9.0, 0.0))
    assert len(Findings.of(config).ends) == 2
    for name in ("dev", *config.tests):
        key = run_key(config, RUNS[0])
        (Path(config.results) / config.name / "score" / key / name / "wer.json").unlink()
    assert Findings.of(config).ends == []
