"""A running workflow is left alone: reading writes nothing, jobs keep the settings of its start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from slurm_cluster import until

from hadpsgd.config import check, load
from hadpsgd.config.command import resolved
from hadpsgd.locks import locked

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
QUICK: dict[str, Any] = {
    "name": "quick",
    "corpus": {
        "kind": "builtin",
        "train_minutes": 0.1,
        "dev_minutes": 0.1,
        "test_minutes": 0.1,
        "speakers": 8,
        "lm_sentences": 100,
    },
}


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Snakemake with the config beside the results."""
    command = [str(BIN / "snakemake"), "--profile", "local", "--configfile", f"{folder}/c.yaml"]
    return subprocess.Popen(
        [*command, *arguments],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def write(folder: Path, **changes: Any) -> Path:
    """The config, with results beside it."""
    file = folder / "c.yaml"
    file.write_text(yaml.safe_dump(QUICK | {"results": str(folder / "results")} | changes))
    return file


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Everything below a folder, with its time and content."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in (folder, *folder.rglob("*"))
    }


@pytest.fixture
def occupied(tmp_path: Path) -> Iterator[Path]:
    """The folder of a config whose workflow runs, and which has been edited since."""
    out = tmp_path / "results/quick"
    out.mkdir(parents=True)
    text = resolved(check(QUICK | {"results": str(tmp_path / "results")}, "c"))
    (out / "config.yaml").write_text(text)
    write(tmp_path, seed=77, lang={"silence_states": 4})
    with locked(out / ".workflow.lock", "process 7 on b", does="runs a workflow here"):
        yield tmp_path


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["-n"], 0),
        (["--lint"], 0),
        (["--rulegraph"], 0),
        (["--summary"], 0),
        (["--until", "lang", "--cores", "1"], 1),  # refused
    ],
    ids=lambda value: value[0].strip("-") if isinstance(value, list) else "",
)
def test_nothing_is_written_beside_a_running_workflow(
    command: list[str], status: int, occupied: Path
) -> None:
    before = tree(occupied / "results")
    ran = start(occupied, *command)
    said, _ = ran.communicate()
    assert ran.returncode == status, said[-2000:]
    assert status == 0 or "process 7 on b runs a workflow here already" in said
    assert tree(occupied / "results") == before  # the lock still names its holder, too


def test_jobs_keep_the_settings_of_the_start(tmp_path: Path) -> None:
    """The config is edited while the first job runs, and somebody else has a look at it."""
    write(tmp_path)
    out = tmp_path / "results/quick"
    running = start(tmp_path, "--cores", "1", "--until", "lang")
    until(lambda: (out / "logs/dictionary.log").exists() or running.poll() is not None, 120)
    write(tmp_path, lang={"silence_states": 4})
    looked = start(tmp_path, "--lint")
    said, _ = running.communicate()
    assert looked.wait() == 0 and running.returncode == 0, said[-2000:]
    topology = (out / "lang/topo").read_text()
    assert "<State> 4 <PdfClass> 4" in topology  # five emitting states of silence, as by default
    (snapshot,) = (out / "configs").glob("*.yaml")
    assert snapshot.read_text() == (out / "config.yaml").read_text()


def test_modules_of_one_workflow_have_a_snapshot_each(tmp_path: Path) -> None:
    """What the main process hands on is what the processes of jobs go by, after an edit, too."""
    names = ("first", "second")
    modules = [
        f"""
module {name}:
    snakefile: "{ROOT}/workflow/Snakefile"
    config: config["{name}"]
use rule * from {name} as {name}_*
"""
        for name in names
    ]
    look = 'rule look:\n    output: "seen.txt"\n    shell: "env > {output}"\n'
    langs = ", ".join(f'"results/{name}/lang"' for name in names)
    want = f"rule want:\n    default_target: True\n    input: {langs}\n"
    (tmp_path / "Snakefile").write_text("\n".join(['configfile: "c.yaml"', *modules, look, want]))
    each = {name: QUICK | {"name": name, "seed": i} for i, name in enumerate(names)}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(each))

    def shown(*arguments: str, **environment: str) -> str:
        ran = subprocess.run(
            [str(BIN / "snakemake"), *arguments],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr[-2000:]
        return ran.stdout

    shown("--cores", "1", "seen.txt")
    lines = (tmp_path / "seen.txt").read_text().splitlines()
    handed = dict(line.split("=", 1) for line in lines if line.startswith("HADPSGD_CONFIG_"))
    assert [*handed] == ["HADPSGD_CONFIG_first", "HADPSGD_CONFIG_second"]
    for name, path in zip(names, handed.values(), strict=True):
        assert load(tmp_path / path).name == name
    edited = {name: content | {"seed": 7} for name, content in each.items()}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(edited))
    in_a_job = shown("-n", "-p", "--mode", "remote", **handed)
    assert all(f"hadpsgd lang --config {path} " in in_a_job for path in handed.values())
    in_the_main_process = shown("-n", "-p", **handed)
    assert not any(path in in_the_main_process for path in handed.values())


def test_a_plan_from_before_anothers_end_is_refused(tmp_path: Path) -> None:
    """What the other made meanwhile would be made again, after removal."""
    config = write(tmp_path)
    out = tmp_path / "results/quick"
    out.mkdir(parents=True)
    ended, read = tmp_path / "ended", tmp_path / "read"
    (tmp_path / "Snakefile").write_text(f"""
include: "{ROOT}/workflow/Snakefile"
import time
Path("{read}").touch()
while not Path("{ended}").exists():
    time.sleep(0.1)
""")
    with locked(out / ".workflow.lock", "process 7 on b", does="runs a workflow here"):
        own = ("--snakefile", str(tmp_path / "Snakefile"), "--cores", "1", "--until", "lang")
        second = start(tmp_path, *own)
        until(lambda: read.exists() or second.poll() is not None, 120)
    before = config.read_text(), tree(out)
    ended.touch()
    said, _ = second.communicate()
    assert second.returncode == 1, said[-2000:]
    assert "another workflow ended here meanwhile" in said
    assert (config.read_text(), tree(out)) == before
    third = start(tmp_path, *own)  # as after a kill -9: the lock names its last holder
    said, _ = third.communicate()
    assert third.returncode == 0, said[-2000:]
    assert (out / ".workflow.lock").read_text().endswith(", ended\n")
