"""`snakemake paper` from nothing to the page, cut down to minutes, killed in the middle."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import psutil
import pytest

from hadpsgd.config import load
from hadpsgd.paper.blocks import NOTHING

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
CONFIG = "config/paper_tiny.yaml"
DONE_BEFORE_THE_KILL = 3
"""Runs whose jobs are finished then; others are under way."""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


class Page:
    """The target in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "results" / "paper_tiny"
        self.page, self.pictures = self.out / "paper.html", self.out / "paper"
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        store = f"sqlite:///{folder}/mlflow.db"
        self.environment = {**os.environ, "PATH": path, "MLFLOW_TRACKING_URI": store}
        self.log = folder / "log"
        self.command = [
            str(BIN / "snakemake"), "--profile", "local", "--cores", "2", "--configfile", CONFIG,
            "--config", f"results={folder}/results", "--", "paper",
        ]  # fmt: skip

    def start(self) -> subprocess.Popen[bytes]:
        with self.log.open("wb") as log:
            return subprocess.Popen(
                self.command, cwd=ROOT, env=self.environment, stdout=log, stderr=log
            )

    def make(self) -> None:
        assert self.start().wait() == 0, self.log.read_text()[-3000:]

    @property
    def finished(self) -> int:
        """Jobs of training that have come to their end since the last start."""
        return self.log.read_text().count("(Rule: train)")

    def trained(self) -> dict[Path, int]:
        """Final models and the moments at which they were written."""
        return {file: file.stat().st_mtime_ns for file in self.out.glob("runs/*/summary.json")}

    @property
    def files(self) -> dict[str, bytes]:
        """The page, its pictures and its tables."""
        return {file.name: file.read_bytes() for file in (*self.pictures.iterdir(), self.page)}

    @property
    def parts(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads((self.pictures / "cells.json").read_text())
        return found


def kill(process: subprocess.Popen[bytes]) -> None:
    """It and all that it has started, at once."""
    found = [psutil.Process(process.pid)]
    found += found[0].children(recursive=True)
    for each in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    process.wait()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """Made after a kill in mid-training; what was trained before it is not trained again."""
    made = Page(tmp_path_factory.mktemp("whole"))
    running = made.start()
    while made.finished < DONE_BEFORE_THE_KILL:
        assert running.poll() is None, made.log.read_text()[-3000:]
        time.sleep(0.05)
    before, done = made.trained(), made.finished
    kill(running)
    assert not made.page.exists()
    made.make()
    after = made.trained()
    assert sum(after[file] == before[file] for file in before) >= done
    assert len(after) == len(load(ROOT / CONFIG).training.members) > done
    assert made.finished <= len(after) - done
    return made


def test_every_part_is_there_with_what_it_is_for(page: Page) -> None:
    """A part without its tables, sentences, pictures or MLflow runs is none."""
    parts = {part["title"]: part for part in page.parts}
    assert list(parts) == ["Batch", "Learners", "Time", "Stragglers", "Why"]
    wanted = {
        "Batch": (3, {"batch"}),
        "Learners": (1, {"learners-loss", "learners-distance", "learners-consensus"}),
        "Time": (3, {"time"}),
        "Stragglers": (1, {"stragglers"}),
        "Why": (2, {"rate-and-batch", "why-noise", "why-epochs"}),
    }
    text = page.page.read_text()
    for title, (tables, pictures) in wanted.items():
        part = parts[title]
        assert part["found"] and part["pictures"].keys() == pictures
        assert len(part["tables"]) == tables and all(table["rows"] for table in part["tables"])
        assert f"<h2>{title}</h2>" in text
        runs = {run for own in part["pictures"].values() for run in own}
        assert bool(runs) == (title != "Time")
        assert all((page.pictures / f"{name}.png").stat().st_size > 5000 for name in pictures)
    cells = [cell for part in parts.values() for table in part["tables"] for row in table["rows"]
             for cell in row]  # fmt: skip
    assert {cell["kind"] for cell in cells} >= {"measured", "virtual", "modelled", "paper"}
    [noise, _] = parts["Why"]["tables"]
    values = [cell["text"] for row in noise["rows"] if row[0]["text"] == "adpsgd" for cell in row]
    assert values and NOTHING not in values


class Tags(HTMLParser):
    """Elements that are open, and addresses."""

    VOID = ("meta", "link", "br", "img", "input", "hr")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element begins."""
        names = ("src", "href", "xlink:href")
        self.addresses += [value or "" for name, value in attrs if name in names]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An empty element."""
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        """The innermost one ends."""
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else(page: Page) -> None:
    text = page.page.read_text()
    tags = Tags()
    tags.feed(text)
    tags.close()
    assert not tags.open
    assert all(address.startswith(("#", "data:")) for address in tags.addresses)
    style = "".join(re.findall(r"<style>(.*?)</style>", text, re.DOTALL))
    assert "url(" not in style.replace("url(#", "") and "@import" not in style
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(set(ids)) == len(ids)
    pointed = {a[1:] for a in tags.addresses if a[0] == "#"} | set(
        re.findall(r"url\(#(.+?)\)", text)
    )
    assert pointed and pointed <= set(ids)


def test_pictures_that_are_deleted_come_back_with_the_same_bytes(page: Page) -> None:
    before = page.files
    for file in page.pictures.iterdir():
        file.unlink()
    page.pictures.rmdir()
    trained = page.trained()
    page.make()
    assert page.files == before and page.trained() == trained
    page.make()
    assert "Nothing to be done" in page.log.read_text()
