"""A run whose settings before training changed, and whose examples did not, goes on from the
checkpoints of the former one: it is a run of its own for all that."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from training_data import write_config, write_egs

from hadpsgd.cli import main
from hadpsgd.config import load, run_key
from hadpsgd.rerun import original
from hadpsgd.tracking import identity
from hadpsgd.tracking.store import Store

pytestmark = pytest.mark.usefixtures("no_tracking_uri")
RUN = "single"
SAME = ("weights", "best_epoch", "steps")


@dataclass(frozen=True)
class Place:
    """A results folder and the config that trains there."""

    folder: Path

    @property
    def file(self) -> Path:
        """The config."""
        return self.folder / "config.yaml"

    @property
    def runs(self) -> Path:
        """Folders of its runs."""
        return self.folder / "results/tiny/runs"

    def change(self, **sections: Any) -> None:
        """Settings of the config, from now on."""
        content = yaml.safe_load(self.file.read_text())
        self.file.write_text(yaml.safe_dump(content | sections))

    def train(self, command: str = "train") -> Path:
        """Into the folder that the workflow gives it; that folder."""
        out = self.runs / run_key(load(self.file), RUN)
        egs = str(self.folder / "egs")
        places = ["--egs", egs, "--dev-egs", egs, "--out", str(out)]
        assert main([command, "--config", str(self.file), "--run-id", RUN, *places]) == 0
        return out


@pytest.fixture
def place(mlflow_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A config of one run, and its examples."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    rate = {"base": 4.0, "base_batch": 40}
    wanted: dict[str, Any] = {"early_stop": 3, "checkpoint_minutes": 1e-6, "learning_rate": rate}
    write_config(mlflow_folder, [{"strategy": RUN}], **wanted)
    write_egs(mlflow_folder / "egs", 80, 1)
    made = Place(mlflow_folder)
    made.change(tracking={"uri": "none", "every_seconds": 0.2})
    return made


def summary(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return found


def rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def mlflow_runs(text: str) -> list[str]:
    """Ids in the links of a comparison."""
    return re.findall(r"[0-9a-f]{32}", text)


def test_its_time_its_curve_and_its_record_are_there(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    uri = f"sqlite:///{place.folder}/mlflow.db"
    place.change(tracking={"uri": uri, "every_seconds": 0.2})
    former = place.train("launch")  # as the workflow does
    place.change(corpus={"kind": "builtin", "train_minutes": 7})
    capfd.readouterr()
    out = place.train("launch")
    said = capfd.readouterr().err
    assert out != former and f"goes on from the checkpoints of {former.name}" in said
    assert "resumed at step 6" in said
    same = (*SAME, "seconds")
    assert [summary(out)[name] for name in same] == [summary(former)[name] for name in same]
    assert rows(out) == rows(former)

    kept = original.find(out.name, place.folder / "results", "")
    assert run_key(kept.config, RUN) == out.name and kept.provenance
    assert run_key(load(former / "config.yaml"), RUN) == former.name
    ours, theirs = identity.read(out), identity.read(former)
    assert ours and theirs and ours.key != theirs.key and ours.former == former.name

    store = Store(uri, place.folder / "results/tracking")
    runs = [store.client.get_run(store.run_id(who.key)) for who in (theirs, ours)]
    minutes = [run.data.params["corpus.train_minutes"] for run in runs]
    assert minutes[1] == "7.0" != minutes[0]
    assert runs[1].data.tags["former_run"] == former.name
    assert len(store.history(store.run_id(ours.key), metric="epoch/heldout_loss")) == 3

    assert main(["compare", "--config", str(place.file), RUN, former.name]) == 0
    assert len(set(mlflow_runs(capfd.readouterr().out))) == 2
    assert main(["clean", "--config", str(place.file)]) == 0
    listed = capfd.readouterr().out
    assert "not known" not in listed and former.name in listed and out.name not in listed


def test_it_goes_on_from_the_middle(place: Place) -> None:
    """The former one was killed: the rows of both are its own."""
    former = place.train()
    *_, last = sorted((place.folder / "results/checkpoints/tiny").glob("*/0*"))
    shutil.rmtree(last)
    (former / "summary.json").unlink()
    place.change(corpus={"kind": "builtin", "train_minutes": 7})
    out = place.train()
    whole, both = rows(former), rows(out)
    assert [row["step"] for row in both if "heldout_loss" in row] == [2, 4, 6]
    begun = [row for row in both if row in whole]
    assert begun == whole[: len(begun)] and 0 < len(begun) < len(whole)
    assert summary(out)["seconds"] > max(row.get("seconds", 0) for row in begun)


def test_it_goes_back_and_takes_the_rows_along(place: Place) -> None:
    """Of a training that was made again under its first key: the rows of all attempts."""
    former = place.train()
    place.change(corpus={"kind": "builtin", "train_minutes": 7})
    out = place.train()
    place.change(corpus={"kind": "builtin"})
    for name in ("final.pt", "summary.json", "metrics.jsonl"):
        (former / name).unlink()
    assert place.train() == former
    assert rows(former) == rows(out)
    assert summary(former)["seconds"] == summary(out)["seconds"]
    assert run_key(load(former / "config.yaml"), RUN) == former.name


def test_what_the_former_one_has_no_more_is_told(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its best epoch is known from its checkpoints: the second of three, at such a rate."""
    former = place.train()
    then = summary(former)
    assert then["best_epoch"] < 3
    shutil.rmtree(former)
    place.change(corpus={"kind": "builtin", "train_minutes": 7})
    out = place.train()
    said = capfd.readouterr().err
    assert f"goes on from the checkpoints of {former.name}" in said
    assert [summary(out)[name] for name in SAME] == [then[name] for name in SAME]
    assert "its rows are gone" in said and (out / "provenance.json").is_file()
    assert run_key(load(out / "config.yaml"), RUN) == out.name


def test_of_one_that_got_nowhere_nothing_is_taken(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    """It was stopped before its first checkpoint."""
    former = place.train()
    [checkpoints] = (place.folder / "results/checkpoints/tiny").iterdir()
    for saved in checkpoints.glob("0*"):
        shutil.rmtree(saved)
    place.change(corpus={"kind": "builtin", "train_minutes": 7})
    capfd.readouterr()
    out = place.train()
    assert "goes on" not in capfd.readouterr().err
    ours, theirs = identity.read(out), identity.read(former)
    assert ours and theirs and ours.key != theirs.key and not ours.former
    assert run_key(load(checkpoints / "config.yaml"), RUN) == out.name


def test_a_run_that_is_resumed_stays_what_it_is(place: Place) -> None:
    """A copy of its folder beside it is none of another run."""
    out = place.train()
    shutil.copytree(out, out.with_name("copy"))
    who, before = identity.read(out), rows(out)
    (out / "summary.json").unlink()
    assert place.train() == out
    assert identity.read(out) == who and rows(out) == before
