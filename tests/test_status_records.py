"""`hadpsgd status`: what became of jobs, and records that are damaged or being written."""

from __future__ import annotations

import errno
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from status_data import config, jobs, planned, recorded, row, status

from hadpsgd.cli import main
from hadpsgd.files import WORKFLOW_LOCK
from hadpsgd.locks import locked
from hadpsgd.run_folder import LAUNCH_LOCK
from hadpsgd.status.jobs import FILE, Happened
from hadpsgd.status.screen import Screen
from hadpsgd.tracking import metrics_file


def test_a_failed_training_tells_what_became_of_it(tmp_path: Path) -> None:
    """It says so in its log; one whose shell alone was killed goes on."""
    run = tmp_path / "runs" / "one"
    run.mkdir(parents=True)
    job = planned("1", rule="train", outputs=["runs/one/final.pt"], logs=["train.log"])
    known = jobs(tmp_path, job)
    known.last["1"] = Happened(job="1", what="failed", time=100.0)
    screen = Screen("x", known, holder="", now=120.0, places={})
    assert row(screen.lines(), "failed") == "train  train.log"
    (tmp_path / "train.log").write_text("epoch 1/3 done\none: no disk left\n\n")
    with locked(run / LAUNCH_LOCK, "process 7 on node1"):
        told = row(screen.lines(), "failed")
    assert (
        told
        == "train  train.log  still trains, process 7 on node1; the next start waits for its end"
    )
    assert row(screen.lines(), "failed") == "train  train.log  one: no disk left"
    (tmp_path / "train.log").write_text("a long line " * 1000)
    assert len(screen.lines()[4]) < 200


def test_what_ctrl_c_stopped_has_not_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snakemake counts it as failed: it ended with another status than 0."""

    def stopped(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hadpsgd.status.command.run", stopped)
    assert main(["status", "--config", "c"]) == 130
    said = capsys.readouterr().err
    assert said == "hadpsgd status: stopped; run it again\n"
    known = jobs(tmp_path, *(planned(job, logs=[f"{job}.log"]) for job in "123"))
    (tmp_path / "1.log").write_text(f"2 of 9 utterances\n{said}")
    (tmp_path / "2.log").write_text("one: stopped at step 188; run it again, it resumes\n")
    for job in "12":
        known.last[job] = Happened(job=job, what="failed", time=100.0)
    screen = Screen("x", known, holder="", now=120.0, places={})
    assert screen.summary() == "x: stopped 20 s ago; 0 of 3 jobs done, 3 left"
    assert screen.lines()[3:6] == ["interrupted:", "  1  1.log", "  2  2.log"]
    known.last["3"] = Happened(job="3", what="failed", time=110.0)
    screen = Screen("x", known, holder="", now=120.0, places={})
    assert screen.summary() == "x: failed 10 s ago; 0 of 3 jobs done, 1 failed, 3 left"
    # while the workflow goes on, somebody ended this job alone
    screen = Screen("x", known, holder="process 1", now=120.0, places={})
    assert "3 failed" in screen.summary()


def test_of_a_long_training_the_last_rows_are_read(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    lines = [json.dumps({"step": n, "text": "x" * 100}) + "\n" for n in range(2000)]
    file.write_text("".join(lines) + '{"step": ')
    rows = list(metrics_file.last_rows(file, size=10 * len(lines[-1])))
    assert [row["step"] for row in rows] == list(range(1991, 2000))
    assert len(list(metrics_file.last_rows(file, size=10**6))) == 2000
    assert list(metrics_file.last_rows(tmp_path / "none", size=9)) == []


def test_tables_hold_the_numbers_of_the_run_as_a_whole(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    row = {"step": 1, "epoch": 0.5, "loss": 2.0, "whole": {"epochs": 5}, "note": "x"}
    file.write_text(json.dumps(row | {f"learner_{n}/loss": 1.0 for n in range(128)}) + "\n")
    assert metrics_file.numbers(file) == [{"step": 1, "epoch": 0.5, "loss": 2.0}]
    assert metrics_file.numbers(tmp_path / "none") == []


def test_a_damaged_record_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results" / "few"
    out.mkdir(parents=True)
    (out / FILE).write_text(json.dumps({"rule": "of another version"}) + "\n")
    assert main(["status", "--config", str(config(tmp_path))]) == 2
    assert f"{out / FILE}: damaged" in capsys.readouterr().err


def test_damaged_lines_are_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a disk that was full for a moment leaves them."""
    config(tmp_path)
    known = jobs(tmp_path, planned("1"), planned("2"))
    events = [Happened(job=job, what="finished", time=1.0) for job in "12"]
    rows: list[Any] = [known.start, *known.planned.values(), *events]
    lines = [json.dumps(asdict(row)) for row in rows]
    damaged = [lines[3][:20], "[]", "7", '{"what": "finished"}', '{"job": "1"}', "\udcff"]
    out = tmp_path / "results" / "few"
    out.mkdir(parents=True)
    text = "\n".join([*lines[:3], *damaged, *lines[3:], ""])
    (out / FILE).write_bytes(text.encode(errors="surrogateescape"))
    assert status(tmp_path, capsys)[0] == "few: finished; all 2 jobs done"


def test_without_locks_it_cannot_tell_who_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", none)
    config(tmp_path)
    out = tmp_path / "results" / "few"
    known = jobs(tmp_path, planned("1"), planned("2"))
    begun = [Happened(job=job, what="started", time=1.0) for job in "12"]
    recorded(out, known.start, *known.planned.values(), *begun)
    with locked(out / WORKFLOW_LOCK, "process 1"):
        lines = status(tmp_path, capsys)
    assert lines[0].startswith("few: running or stopped (")
    assert "no locks" in lines[0] and "0 of 2 jobs done" in lines[0]
    assert row(lines, "running or interrupted") == "1"
    recorded(out, known.start, *known.planned.values(),
             *(Happened(job=job, what="finished", time=1.0) for job in "12"))  # fmt: skip
    assert status(tmp_path, capsys)[0] == "few: finished; all 2 jobs done"


def test_a_line_that_is_being_written_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results" / "few"
    out.mkdir(parents=True)
    config(tmp_path)
    known = jobs(tmp_path, planned("1"))
    lines = [json.dumps(asdict(row)) for row in (known.start, known.planned["1"])]
    done = json.dumps(asdict(Happened(job="1", what="finished", time=1.0)))
    (out / FILE).write_text("\n".join([*lines, done[:20]]))
    assert "0 of 1 jobs done, 1 left" in status(tmp_path, capsys)[0]
    (out / FILE).write_text("\n".join([*lines, done, ""]))
    assert status(tmp_path, capsys)[0] == "few: finished; all 1 jobs done"
