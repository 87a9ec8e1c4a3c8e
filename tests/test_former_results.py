"""Results of a former run, once the workflow was to make them again and failed."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest
from tracking_data import write_config, write_results

from hadpsgd import cli
from hadpsgd.config import Config, run_key
from hadpsgd.status.jobs import FAILED, FILE, FINISHED, Happened, Planned, Start
from hadpsgd.tracking.results import results_folder

SCORED = ("5.11 %", "18.75 %", "6.00 %")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return write_results(tmp_path)


def job(number: str, *outputs: str, needed: bool = True) -> Planned:
    return Planned(
        job=number,
        rule="r",
        wildcards={},
        needed=needed,
        after=[],
        threads=1,
        priority=0,
        outputs=list(outputs),
        logs=[],
        benchmark="",
    )


def record(config: Config, *outputs: str, what: str) -> Path:
    """A start that had to make these, of which each became that; also one that was there."""
    folder = results_folder(config)
    pages = ("wer.md", "report.html", "seconds.png", "index.html")
    names = [*outputs, *pages]
    for name in pages:
        (folder / name).write_text("former")
        os.utime(folder / name, (1e9, 1e9))
    then = Path("elsewhere") / config.name  # as the folder was called where the workflow ran
    start = Start(
        time=1.5e9,
        folder="/gone",
        executor="local",
        slots=1,
        remote=False,
        snapshot=str(then / "configs/0.yaml"),
    )
    made = [job("there", str(then / "score" / run_key(config, "single") / "dev"), needed=False)]
    planned = [job(str(n), str(then / name)) for n, name in enumerate(names)]
    events = [Happened(job=str(n), what=what, time=2e9) for n in range(len(names))]
    rows: list[Start | Planned | Happened] = [start, *made, *planned, *events]
    lines = [json.dumps(asdict(row)) for row in rows]
    (folder / FILE).write_text("\n".join(lines) + "\n")
    (folder / "configs").mkdir(exist_ok=True)
    write_config(config, folder / "configs/0.yaml")
    return write_config(config, folder / "config.yaml")


def told(capsys: pytest.CaptureFixture[str], *command: object) -> str:
    assert cli.main([str(word) for word in command]) == 0
    return capsys.readouterr().out


def to_make(config: Config) -> list[str]:
    return [f"score/{run_key(config, run.id)}/tuned.json" for run in config.training.members]


def test_the_table_has_no_scores_that_were_to_be_made_again(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    file = record(config, *to_make(config), what=FAILED)
    out = told(capsys, "report", "--config", file, "--show")
    assert not any(rate in out for rate in SCORED)
    assert "not finished" in out
    *_, last = out.strip().splitlines()
    assert last.startswith(f"{results_folder(config) / 'index.html'} and the pages beside it are ")
    assert "the workflow's last run that finished, 2001-09-" in last


def test_pages_written_by_hand_have_none_either(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    file = record(config, *to_make(config), what=FAILED)
    page = results_folder(config) / "wer.md"
    told(capsys, "report", "--config", file, "--out", page)
    assert not any(rate in page.read_text() for rate in SCORED)
    told(capsys, "report", "--config", file, "--out", page, "--unfinished")  # as the workflow does
    assert all(rate in page.read_text() for rate in SCORED)


def test_a_comparison_says_so(config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    file = record(config, *to_make(config), what=FAILED)
    out = told(capsys, "compare", "--config", file)
    status = next(line for line in out.splitlines() if line.startswith("| status"))
    assert "not finished" in status and "| finished" not in status
    assert not any(rate in out for rate in SCORED)


def test_what_is_made_counts_and_its_pages_are_named(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    file = record(config, *to_make(config), what=FINISHED)
    out = told(capsys, "report", "--config", file, "--show")
    assert all(rate in out for rate in SCORED)
    folder = results_folder(config)
    assert out.endswith(f"{folder / 'index.html'}\n{folder / 'seconds.png'}\n")


def test_a_page_that_failed_alone_gives_way_to_the_other(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its rates are those of now, since the analysis of errors failed alone."""
    file = record(config, what=FINISHED)
    folder = results_folder(config)
    lines = (folder / FILE).read_text().splitlines()
    lines[-1] = lines[-1].replace(FINISHED, FAILED)  # of index.html
    (folder / FILE).write_text("\n".join(lines) + "\n")
    out = told(capsys, "report", "--config", file, "--show")
    assert out.endswith(f"{folder / 'report.html'}\n{folder / 'seconds.png'}\n")
    assert "5.11 %" in out


def test_a_record_of_other_settings_tells_nothing(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """A change that failed and was taken back: Snakemake has nothing to do, and records nothing."""
    file = record(config, *to_make(config), what=FAILED)
    changed = config.model_copy(update={"lm": config.lm.model_copy(update={"order": 3})})
    write_config(changed, results_folder(config) / "configs/0.yaml")
    out = told(capsys, "report", "--config", file, "--show")
    assert "5.11 %" in out and "not finished" not in out
    assert out.endswith("index.html\n" + str(results_folder(config) / "seconds.png") + "\n")


def test_pages_of_now_are_named(config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    file = record(config, *to_make(config), what=FAILED)
    page = results_folder(config) / "wer.md"
    out = told(capsys, "report", "--config", file, "--out", page, "--show")
    assert "not finished" in out and out.endswith(
        f"{page.with_name('report.html')}\n{page.with_name('seconds.png')}\n"
    )


def test_a_damaged_record_tells_nothing(config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    file = record(config, *to_make(config), what=FAILED)
    (results_folder(config) / FILE).write_text("no JSON\n")
    assert "5.11 %" in told(capsys, "report", "--config", file, "--show")
