"""Results as they come: beside runs that diverge, that fail, and after a kill."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from small_workflow import BIN, CONFIG, ROOT, SYNCHRONOUS, Small, write

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

GOOD = "hadpsgd-2x2-dpsgd"
MADE = ("tracked", "tracking.json", "wer.md", "report.html", "index.html", "errors")
"""Results that a copy of the session's results does without."""


def with_runs(small: Small, folder: Path, *runs: dict[str, Any]) -> Small:
    """A copy of the results with these runs: whatever the session has made is there."""
    folder.mkdir()
    shutil.copytree(small.out, folder / "results/small", copy_function=shutil.copy2)
    for name in MADE:
        path = folder / "results/small" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return Small(folder, write(folder, training={**CONFIG["training"], "runs": list(runs)}))


def command(place: Small, *more: str) -> tuple[str, ...]:
    return ("snakemake", "--profile", "local", "--cores", "2", "--configfile", str(place.config),
            *more)  # fmt: skip


def stored(place: Small) -> dict[str, Any]:
    """The trainings in MLflow, by name."""
    from mlflow import MlflowClient

    client = MlflowClient(place.env["MLFLOW_TRACKING_URI"])
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = client.search_runs(experiments, "tags.kind = 'training'")
    return {run.info.run_name: run for run in runs}


@dataclass(frozen=True)
class Wild:
    """A workflow with a run that diverged."""

    place: Small
    ran: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def wild(small: Small, tmp_path_factory: pytest.TempPathFactory) -> Wild:
    """A sound run and one of an absurd learning rate."""
    runs = (SYNCHRONOUS, {"name": "wild", "learning_rate": {"base": 1e6}})
    place = with_runs(small, tmp_path_factory.mktemp("wild") / "copy", *runs)
    return Wild(place, place.command(*command(place)))


def test_a_run_that_diverges_is_a_row_and_the_workflow_ends_well(wild: Wild) -> None:
    place = wild.place
    assert wild.ran.returncode == 0, wild.ran.stdout[-3000:] + wild.ran.stderr[-3000:]
    table, explained = (place.out / "wer.md").read_text().split("\n\n", 3)[2:]
    good, bad = (line for line in table.splitlines() if re.match(r"\| (hadpsgd|wild)", line))
    assert bad.count("diverged") == 3 and good.count(" % (") == 3
    assert re.search(r"^- wild diverged: gradient of learner 0 is not finite at step \d+$",
                     table + "\n" + explained, re.MULTILINE)  # fmt: skip
    page = (place.out / "report.html").read_text()
    assert "diverged: gradient of learner 0" in page
    compared = place.command("hadpsgd", "compare", "--config", str(place.config))
    assert compared.returncode == 0 and "diverged: gradient of learner 0" in compared.stdout
    runs = stored(place)
    assert runs["wild"].info.status == "FAILED"
    assert runs["wild"].data.tags["status"] == "diverged"
    assert "WER/swb" not in runs["wild"].data.metrics
    assert runs[GOOD].data.tags["status"] == "finished" and "WER/swb" in runs[GOOD].data.metrics


def test_a_run_that_diverged_is_not_trained_again(wild: Wild) -> None:
    again = wild.place.command(*command(wild.place))
    assert "Nothing to be done" in again.stdout + again.stderr
    folder = wild.place.out / "runs" / wild.place.key("wild")
    rerun = wild.place.command("hadpsgd", "rerun", str(folder))
    assert rerun.returncode == 2 and rerun.stderr.count("\n") == 1
    assert "not finite at step" in rerun.stderr and "left no weights" in rerun.stderr


class Links(HTMLParser):
    """Addresses of what a page links or shows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, _: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src", "xlink:href") and value:
                self.found.append(value)


def followed(text: str, where: str) -> Iterator[str]:
    """Paths of the files that a page leads to; `where` is its own folder."""
    for address in Links(text).found:
        parts = urlsplit(address)
        assert not parts.netloc, address
        if parts.scheme != "data" and parts.path:
            yield os.path.normpath(f"{where}/{unquote(parts.path)}")


def test_every_link_of_the_results_leads_somewhere(wild: Wild) -> None:
    out = wild.place.out
    pages = [out / "index.html", out / "report.html", *out.glob("errors/*/index.html")]
    found = {page: list(followed(page.read_text(), str(page.parent))) for page in pages}
    assert all(Path(path).is_file() for paths in found.values() for path in paths)
    assert len(pages) == 4  # what diverged has no errors to lead to
    assert found[out / "index.html"] == [str(out / "errors" / wild.place.key(GOOD) / "index.html")]
    (good,) = (page for page in pages if page.parent.name == wild.place.key(GOOD))
    clips = re.findall(r'class="clips">(.*?)</script>', good.read_text(), re.DOTALL)
    assert clips and all(map(json.loads, clips))


def test_every_link_of_our_pages_in_snakemakes_report(wild: Wild, tmp_path: Path) -> None:
    """Packed as files, and all in one page."""
    for kind in ("zip", "html"):
        ran = wild.place.command(*command(wild.place, "--report", str(tmp_path / f"r.{kind}")))
        assert ran.returncode == 0, ran.stderr[-2000:]
    archive = zipfile.ZipFile(tmp_path / "r.zip")
    names = set(archive.namelist())
    ours = [name for name in names if "/data/" in name and name.endswith(".html")]
    assert any(name.endswith("report.html") for name in ours), names
    for name in ours:
        text = archive.read(name).decode()
        assert names >= set(followed(text, str(Path(name).parent))), name
    page = (tmp_path / "r.html").read_text()
    packed = re.findall(r"data:text/html;[^,]*?base64,([\w+/=]+)", page)
    texts = [base64.b64decode(text).decode() for text in packed]
    assert any("word error rates" in text for text in texts)
    assert not [path for text in texts for path in followed(text, "")]


def test_every_link_of_the_pages_in_mlflow(wild: Wild, tmp_path: Path) -> None:
    from mlflow.artifacts import download_artifacts

    runs = stored(wild.place)
    for name, run in runs.items():
        folder = tmp_path / name
        download_artifacts(
            run_id=run.info.run_id,
            dst_path=str(folder),
            tracking_uri=wild.place.env["MLFLOW_TRACKING_URI"],
        )
        pages = list(folder.rglob("*.html"))
        assert [page.name for page in pages] == ["report.html"]
        for page in pages:
            assert all(
                Path(path).is_file() for path in followed(page.read_text(), str(page.parent))
            )


def test_a_kill_and_a_run_that_fails_leave_the_others_results(small: Small, tmp_path: Path) -> None:
    """Killed once the first run is scored; then the second one's training finds no memory.

    The first is in MLflow by then, and in the table that is printed; its errors are analysed.
    """
    broken = {"name": "broken", "model": {"cells": 10**6}}  # more than any memory holds
    place = with_runs(small, tmp_path / "copy", SYNCHRONOUS, broken)
    scored = place.out / "tracked" / f"{place.key(GOOD)}.scores.json"
    running = subprocess.Popen(
        [str(BIN / "snakemake"), *command(place)[1:]],
        cwd=ROOT,
        env=place.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while not scored.exists():
        assert running.poll() is None, "the workflow ended before it could be killed"
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    rate = json.loads((place.out / "score" / place.key(GOOD) / "swb/wer.json").read_text())["wer"]
    assert stored(place)[GOOD].data.metrics["WER/swb"] == pytest.approx(rate, abs=0.01)
    assert not (place.out / "wer.md").exists()

    ran = place.command(*command(place))
    assert ran.returncode != 0
    assert not (place.out / "wer.md").exists()
    assert (place.out / "errors" / place.key(GOOD) / "index.html").is_file()
    lines = [line for line in ran.stderr.splitlines() if line.startswith("| ")]
    assert [line.split("|")[1].strip() for line in lines][-2:] == [GOOD, "broken"]
    assert lines[-2].count(" % (") == 3 and lines[-1].count("failed") == 3
    why = r"rank 0 failed \(status 1\): RuntimeError: .*can't allocate memory"
    assert re.search(f"^- broken failed: {why}", ran.stderr, re.MULTILINE)
    runs = stored(place)
    assert runs["broken"].data.tags["status"] == "failed"
    assert re.match(why, runs["broken"].data.tags["status_why"])
    assert runs["broken"].info.status == "FAILED" and runs[GOOD].info.status == "FINISHED"
