"""`hadpsgd clean`: what it lists and removes is what no config names, and nothing else."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from hadpsgd import origins
from hadpsgd.cli import main
from hadpsgd.config import load, run_key
from hadpsgd.config.command import resolved
from hadpsgd.locks import locked
from hadpsgd.origins import Origin

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Place:
    """A results folder `quick` and config files that share it."""

    folder: Path

    @property
    def out(self) -> Path:
        """The results folder."""
        return self.folder / "results" / "quick"

    def write(self, name: str, rate: float) -> Path:
        """A config of one run."""
        content: dict[str, Any] = {
            "name": "quick",
            "results": str(self.folder / "results"),
            "corpus": {"kind": "builtin", "lm_sentences": 100},
            "training": {"learning_rate": {"base": rate}, "runs": [{"strategy": "single"}]},
        }
        (self.folder / name).write_text(yaml.safe_dump(content))
        return self.folder / name

    def train(self, file: Path, *started: Origin) -> str:
        """What a start of the config leaves, of 1000 bytes each; the key of its run."""
        config = load(file)
        key = run_key(config, "single")
        snapshot = self.out / "configs" / f"{key}.yaml"
        snapshot.parent.mkdir(parents=True, exist_ok=True)
        snapshot.write_text(resolved(config))
        for origin in started:
            origins.note(snapshot, origin)
        for path in self.of(key):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes(1000))
        for folder in (self.checkpoints(key), self.out / "runs" / key):
            (folder / "config.yaml").write_text(resolved(config))
        return key

    def checkpoints(self, key: str) -> Path:
        """Named by another hash than the key's."""
        return self.folder / "results" / "checkpoints" / "quick" / f"single-{key[-8:]}0000"

    def of(self, key: str) -> list[Path]:
        """Files of a run."""
        names = (
            f"runs/{key}/final.pt",
            f"decode/{key}/dev/lat.1.gz",
            f"score/{key}/tuned.json",
            f"errors/{key}/page.html",
            f"compared/{key}/page.html",
            f"tracked/{key}.training.json",
            f"logs/train.{key}.log",
            f"logs/train.{key}/rank0.log",
            f"logs/decode/{key}.dev.log",
            f"benchmarks/train.{key}.tsv",
            f"benchmarks/decode.{key}.dev.tsv",
        )
        return [*(self.out / name for name in names), self.checkpoints(key) / "000000001" / "a.pt"]

    def files(self) -> set[str]:
        """All files but the workflow's lock."""
        paths = self.folder.rglob("*")
        return {str(p) for p in paths if p.is_file() and p.name != ".workflow.lock"}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """With what no run has: data of all runs, and a folder of the user's."""
    made = Place(tmp_path)
    for name in ("feats/logmel/train/feats.ark", "runs/my notes/text", "wer.md"):
        path = made.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("kept")
    return made


def changed(place: Place) -> tuple[Path, str, str]:
    """A config that was started, changed and started again: keys of before and of now."""
    file = place.write("c.yaml", 0.1)
    former = place.train(file, Origin.of_file(file))
    return file, former, place.train(place.write("c.yaml", 0.2), Origin.of_file(file))


def test_without_remove_it_lists(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    file, former, now = changed(place)
    before = place.files()
    assert main(["clean", "--config", str(file)]) == 0
    shown = capsys.readouterr().out
    size = 12_000 + 2 * (place.checkpoints(former) / "config.yaml").stat().st_size
    assert f"1 run that no config names, {size / 1000:.0f} kB" in shown
    assert former in shown and now not in shown
    assert "nothing was removed" in shown
    assert place.files() == before


def test_remove_takes_all_of_the_former_run_and_nothing_else(place: Place) -> None:
    file, former, _ = changed(place)
    before = place.files()
    gone = {*map(str, place.of(former)), str(place.checkpoints(former) / "config.yaml")}
    gone.add(str(place.out / "runs" / former / "config.yaml"))
    assert gone < before
    assert main(["clean", "--config", str(file), "--remove"]) == 0
    assert before - place.files() == gone
    assert not (place.out / "runs" / former).exists()
    assert main(["clean", "--config", str(file), "--remove"]) == 0
    assert before - place.files() == gone


@pytest.mark.parametrize("how", ["file", "both", "settings", "module", "unknown"])
def test_runs_of_other_configs_stay_unless_told(
    how: str, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    file, former, _ = changed(place)
    path = str(file.resolve())
    started = {
        "file": [Origin.of_file(place.folder / "b.yaml")],
        "both": [Origin.of_file(place.folder / "b.yaml"), Origin.of_file(file)],
        "settings": [Origin(files=[path], settings={"seed": "3"})],
        "module": [Origin(files=[path], modules=["speech"])],
        "unknown": [],
    }[how]
    other = place.train(place.write("b.yaml", 0.3), *started)
    before = place.files()
    assert main(["clean", "--config", str(file), "--remove"]) == 0
    shown = capsys.readouterr().out
    told = str(started[0]) if started else "a config that is not recorded"
    assert f"{other}  " in shown and told in shown
    assert {*map(str, place.of(other))} <= place.files()
    assert not {*map(str, place.of(former))} & place.files()
    assert main(["clean", "--config", str(file), "--remove", "--others"]) == 0
    assert {*map(str, place.of(other))} <= before - place.files()


def test_a_former_config_that_cannot_be_read(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    file, former, _ = changed(place)
    (place.out / "configs" / "old.yaml").write_text("name: quick\nno_such_key: 1\n")
    before = place.files()
    assert main(["clean", "--config", str(file), "--remove"]) == 2
    assert "old.yaml" in capsys.readouterr().err
    assert place.files() == before
    assert main(["clean", "--config", str(file), "--remove", "--others"]) == 0
    assert not {*map(str, place.of(former))} & place.files()


def test_while_a_workflow_runs_nothing_is_removed(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    file, *_ = changed(place)
    before = place.files()
    with locked(place.out / ".workflow.lock", "process 7 on host"):
        assert main(["clean", "--config", str(file), "--remove"]) == 2
        assert "process 7 on host runs a workflow" in capsys.readouterr().err
        assert main(["clean", "--config", str(file)]) == 0
        assert "process 7 on host runs a workflow here" in capsys.readouterr().out
    assert place.files() == before


@pytest.mark.parametrize("where", ["runs", "checkpoints"])
def test_a_run_that_is_trained_by_hand_stays(
    where: str, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    file, former, _ = changed(place)
    folder = place.out / "runs" / former if where == "runs" else place.checkpoints(former)
    with locked(folder / ".launch.lock", "process 8 on host"):
        before = place.files()
        assert main(["clean", "--config", str(file), "--remove"]) == 0
        assert "kept, in training now" in capsys.readouterr().out
        assert place.files() == before


@pytest.mark.parametrize("others", [[], ["--others"]])
def test_another_environment_removes_nothing(
    others: list[str],
    place: Place,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Paths with a variable are in runs' keys."""
    file = place.write("c.yaml", 0.1)
    content = yaml.safe_load(file.read_text())
    content["corpus"] = {"kind": "an4", "path": "${ELSEWHERE:-a}/an4"}
    file.write_text(yaml.safe_dump(content))
    place.train(file, Origin.of_file(file))
    before = place.files()
    monkeypatch.setenv("ELSEWHERE", "b")
    assert main(["clean", "--config", str(file), "--remove", *others]) == 2
    error = capsys.readouterr().err
    assert "environment variable" in error and error.count("\n") == 1
    assert place.files() == before


def test_a_setting_that_decides_nothing_need_not_be_started(place: Place) -> None:
    file, former, _ = changed(place)
    file.write_text(file.read_text() + "site: {learners_per_node: 2}\n")
    assert main(["clean", "--config", str(file), "--remove"]) == 0
    assert not (place.out / "runs" / former).exists()


def test_without_locks_nothing_is_removed(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, *_ = changed(place)
    before = place.files()

    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    assert main(["clean", "--config", str(file), "--remove"]) == 2
    assert "no locks on this file system: a workflow" in capsys.readouterr().err
    assert place.files() == before


def test_a_folder_that_only_looks_like_a_run_stays(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    file, former, _ = changed(place)
    copies = [place.out / kind / f"{former}-20261122" for kind in ("runs", "decode", "score")]
    for copy in copies:
        shutil.copytree(copy.with_name(former), copy)
    assert main(["clean", "--config", str(file), "--remove"]) == 0
    shown = capsys.readouterr().out
    assert "not known, kept" in shown and all(str(copy) in shown for copy in copies)
    assert all(copy.is_dir() and not copy.with_name(former).exists() for copy in copies)


def test_checkpoints_that_a_run_of_now_resumes_stay(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """Settings that change the key of a run, but not how it is trained."""
    file = place.write("c.yaml", 0.1)
    former = place.train(file, Origin.of_file(file))
    content = yaml.safe_load(file.read_text())
    content["realign"] = {"passes": 1}
    file.write_text(yaml.safe_dump(content))
    now = place.train(file, Origin.of_file(file))
    assert now != former
    assert main(["clean", "--config", str(file), "--remove"]) == 0
    shown = capsys.readouterr().out
    assert f"resume:\n  {place.checkpoints(former)}" in shown
    assert (place.checkpoints(former) / "000000001" / "a.pt").is_file()
    assert not (place.out / "runs" / former).exists()


def test_what_cannot_be_removed_is_told_at_the_end(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, former, _ = changed(place)
    with monkeypatch.context() as patch:
        real = shutil.rmtree

        def rmtree(path: Path) -> None:
            if path.parent.name == "decode":
                raise OSError(errno.ENOTEMPTY, "Directory not empty", str(path))
            real(path)

        patch.setattr(shutil, "rmtree", rmtree)
        assert main(["clean", "--config", str(file), "--remove"]) == 2
    error = capsys.readouterr().err
    assert "Directory not empty" in error and error.count("\n") == 1
    assert not any(path.exists() for path in place.of(former))
    aside = place.out / "decode" / f".removed-{former}"
    assert aside.is_dir()
    assert main(["clean", "--config", str(file), "--remove"]) == 0
    assert not aside.exists()


def test_of_a_link_the_link_goes(place: Place) -> None:
    file, former, _ = changed(place)
    run, elsewhere = place.out / "runs" / former, place.folder / "elsewhere"
    run.rename(elsewhere)
    run.symlink_to(elsewhere)
    assert main(["clean", "--config", str(file), "--remove"]) == 0
    assert not run.is_symlink() and (elsewhere / "final.pt").is_file()


def test_nothing_there(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    file = place.write("c.yaml", 0.1)
    file.write_text(file.read_text().replace("name: quick", "name: never"))
    assert main(["clean", "--config", str(file), "--remove"]) == 0
    assert "nothing there" in capsys.readouterr().out
    assert not (place.folder / "results" / "never").exists()


def test_a_workflow_records_where_its_config_comes_from(place: Place) -> None:
    """So what the same file said before is known from what others say."""
    file = place.write("c.yaml", 0.1)
    found = []
    for settings in ([], ["--config", "seed=3", "site=profiles/local/site.yaml"]):
        command = [str(BIN / "snakemake"), f"{place.out}/corpus/lm/train.txt"]
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            [*command, "--profile", "local", "--configfile", str(file), *settings],
            cwd=ROOT,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found = [origins.read(path) for path in sorted((place.out / "configs").glob("*.yaml"))]
    own = Origin.of_file(file)
    assert sorted(found, key=str) == sorted(
        [[own], [Origin(files=own.files, settings={"seed": "3"})]], key=str
    )
