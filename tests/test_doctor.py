"""`hadpsgd doctor`: a line for each thing, and an exit status."""

from __future__ import annotations

import http.server
import os
import resource
import stat
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from corpus_data import make_data
from slurm_cluster import Slurm

from hadpsgd.cli import main
from hadpsgd.config.load import check
from hadpsgd.corpus.lang import needed
from hadpsgd.models.blstm import BLSTM
from hadpsgd.setup import cluster, machine, places
from hadpsgd.setup.need import bytes_needed, hours_of_sets

CONFIG = {"name": "x", "corpus": {"kind": "builtin", "train_minutes": 3}}


def write(folder: Path, **changes: object) -> Path:
    path = folder / "x.yaml"
    path.write_text(yaml.safe_dump(CONFIG | {"results": str(folder / "results")} | changes))
    return path


def doctor(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, str]]:
    """Exit status, and by what was looked at: the level and the rest of the line."""
    status = main(["doctor", *arguments])
    *lines, last = capsys.readouterr().out.splitlines()
    found = {}
    for line in lines:
        level, what = line[:4].strip(), line[6:].partition(":")[0]
        assert level in ("ok", "warn", "fail"), line
        assert (level == "ok") or ". " in line  # what to do
        found[what] = line
    levels = [line[:4].strip() for line in lines]
    assert last == ", ".join(f"{levels.count(level)} {level}" for level in ("ok", "warn", "fail"))
    assert status == (1 if "fail" in levels else 0)
    return status, found


def test_a_machine_that_is_ready(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = doctor(capsys, "--config", str(write(tmp_path)))
    assert status == 0
    assert found["Python"].startswith(f"ok    Python: {sys.version.split()[0]}")
    for what in ("results", "locks (flock)", "locks (fcntl)", "disk"):
        assert found[what].startswith("ok") and str(tmp_path) in found[what]
    assert not [path for path in tmp_path.iterdir() if path.name != "x.yaml"]  # nothing is left
    assert "about 2.4 GB needed" in found["disk"]


def test_what_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    config = write(tmp_path, results="/proc/results")
    status, found = doctor(capsys, "--config", str(config), "--cluster", "slurm", "--hours", "1e6")
    assert status == 1
    failed = {what for what, line in found.items() if line.startswith("fail")}
    assert failed == {"results", "disk", "slurm"}
    assert "sbatch, sinfo, squeue, srun not in PATH" in found["slurm"]


def test_wrong_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--hours", "-1"]) == 2
    assert main(["doctor", "--config", str(tmp_path / "none.yaml")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_paths_of_the_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each by its key: folders, files of data directories, and audio."""
    sets = {name: str(make_data(tmp_path / name)) for name in ("train", "dev", "test")}
    lexicon = tmp_path / "train" / "lexicon.txt"
    corpus: dict[str, object] = {
        "kind": "kaldi",
        "train": sets["train"],
        "dev": sets["dev"],
        "tests": {"test": {"data": sets["test"], "recordings": ["*"]}},
        "dict_dir": str(lexicon),
    }

    def failed(**changes: object) -> dict[str, str]:
        lm = {"sources": {"web": str(lexicon)}}
        config = write(tmp_path, **{"corpus": corpus, "lm": lm} | changes)
        _, found = doctor(capsys, "--config", str(config))
        assert ("inputs" in found) == (not any(line.startswith("fail") for line in found.values()))
        return {what: line for what, line in found.items() if line.startswith("fail")}

    assert failed() == {}
    gone = f"{sets['dev']}v"
    assert failed(corpus=corpus | {"dev": gone}) == {
        "corpus.dev": f"fail  corpus.dev: {gone}: no such file or folder. "
        "Correct the path in the config"
    }
    assert failed(corpus=corpus | {"dict_dir": gone, "lm_text": gone}).keys() == {
        "corpus.dict_dir", "corpus.lm_text",
    }  # fmt: skip
    assert failed(lm={"sources": {"web": gone}}).keys() == {"lm.sources.web"}
    (tmp_path / "test" / "audio" / "call.wav").unlink()
    (tmp_path / "dev" / "data" / "train" / "text").unlink()
    found = failed()
    assert found.keys() == {"corpus.dev", "corpus.tests.test"}
    assert "no file text. Name a Kaldi data directory" in found["corpus.dev"]
    assert "call.wav: missing audio file" in found["corpus.tests.test"]
    (tmp_path / "test" / "audio" / "call.wav").touch()
    last = tmp_path / "test" / "data" / "train" / "wav.scp"
    last.write_text("call-A audio/call.wav\ncall-B audio/none.wav\n")
    assert failed().keys() == {"corpus.dev", "corpus.tests.test"}
    one = {"data": sets["test"], "recordings": ["call-A"]}  # the other is not looked at
    assert failed(corpus=corpus | {"tests": {"test": one}}).keys() == {"corpus.dev"}
    long = {"data": sets["test"], "recordings": ["*"]}
    assert failed(corpus=corpus | {"tests": {"x": long}, "dict_dir": "a" * 300}).keys() == {
        "corpus.dev", "corpus.tests.x", "corpus.dict_dir",
    }  # fmt: skip
    last.write_text("call-A sox a |\ncall-B sox b |\n")
    assert failed().keys() == {"corpus.dev"}


def test_open_files() -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))

    code = "from hadpsgd.setup.machine import open_files; print(open_files())"
    told = subprocess.run(
        [sys.executable, "-c", code], preexec_fn=few, capture_output=True, text=True, check=True
    ).stdout
    assert told == "fail  open files: up to 200. ulimit -n 4096 (up to 300 without root)\n"


def test_packages(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text(
        "# made\nnumpy==1.0\npytest\nno-such-package==1 ; python_version > '3'\n"
        "x==1 ; python_version < '3'\n"
    )
    told = str(machine.packages(lock))
    assert told.startswith("warn") and "1 of other versions" in told and "numpy" in told
    assert "1 missing: no-such-package" in told
    lock.write_text("pytest\n")
    assert machine.packages(lock).level == "ok"


def test_processor(tmp_path: Path) -> None:
    information = tmp_path / "cpuinfo"
    for flags, told in (
        ("fpu avx2 avx512_bf16", "bf16 in hardware (avx512_bf16)"),
        ("fpu avx2", "no bf16"),
        ("fpu sse4_2", "without AVX2"),
    ):
        information.write_text(f"processor : 0\nflags\t\t: {flags}\n")
        assert told in str(machine.processor(information))


class _Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_stores(tmp_path: Path) -> None:
    assert places.store("none").level == "ok"
    assert places.store(f"sqlite:///{tmp_path}/new/mlflow.db").level == "ok"
    (tmp_path / "folder").mkdir()
    assert places.store(f"sqlite:///{tmp_path}/folder").level == "warn"
    with http.server.HTTPServer(("127.0.0.1", 0), _Healthy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_port
        assert places.store(f"http://127.0.0.1:{port}").level == "ok"
        assert places.store(f"http://127.0.0.1:{port}/elsewhere").level == "warn"
        server.shutdown()
    for uri in (f"http://u:secret@127.0.0.1:{port}", f"postgresql://u:secret@127.0.0.1:{port}/db"):
        told = str(places.store(uri))
        assert told.startswith("warn") and "secret" not in told


def test_the_need_grows_with_what_is_kept() -> None:
    plain = check(CONFIG, "x")
    assert sum((hours_of_sets(plain) or {}).values()) == pytest.approx((3 + 3 + 8) / 60)
    hour = bytes_needed(plain, 2) - bytes_needed(plain, 1)
    # logmel, MFCC, examples: 21 frames, four more on both sides for deltas, 21 labels
    example = 4 * ((21 + 8) * 40 + 21) / 21
    assert hour == pytest.approx(360_000 * (4 * (40 + 13) + example))
    six = check(CONFIG | {"egs": {"frames": 42, "shift": 21, "tempos": [0.9, 1.0, 1.1]}}, "x")
    six_fold = 6 * 4 * ((42 + 8) * 40 + 42) / 42
    hour = bytes_needed(six, 2) - bytes_needed(six, 1)
    assert hour == pytest.approx(360_000 * (4 * (40 + 13) + six_fold))


def test_the_need_counts_checkpoints() -> None:
    """Weights and momentum of each super-learner, and one checkpoint more than are kept."""
    sizes = {"layers": 1, "cells": 8, "projection": 4}
    alignment = {"kind": "tri", "tri": {"leaves": 50}}
    model = BLSTM(check(CONFIG | {"model": sizes}, "x").model, input_dim=120, num_pdfs=50)
    weights = sum(p.numel() for p in model.parameters())

    def need(*runs: Mapping[str, object], **training: object) -> float:
        changes = {"model": sizes, "alignment": alignment}
        config = check(CONFIG | changes | {"training": {"runs": list(runs), **training}}, "x")
        return bytes_needed(config, 1)

    one = {"strategy": "single"}
    many = {"strategy": "hadpsgd", "among": "adpsgd", "learners": 8, "super_learner": 2}
    both = need(one, many, keep_checkpoints=4)
    assert both - need(one, keep_checkpoints=4) == 4 * 2 * 4 * weights * 5
    seeds = need(one, seeds=[1, 2, 3], keep_checkpoints=1)
    assert seeds - need(one, keep_checkpoints=1) == 2 * 2 * 4 * weights * 2
    double = need(one, precision="fp64", keep_checkpoints=1)
    assert double - need(one, keep_checkpoints=1) == 2 * 4 * weights * 2


def test_a_damaged_record_of_init_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "init.json"
    sets = {name: {"data": str(tmp_path / name)} for name in ("train", "dev", "test")}
    corpus = {"kind": "kaldi", "train": sets["train"], "dev": sets["dev"]}
    corpus |= {"tests": {"test": sets["test"]}, "dict_dir": str(tmp_path)}
    config = write(tmp_path, corpus=corpus)
    for damage in ("{", "[]", "{}", '{"hours": "many"}', '{"hours": null}', "\udcff",
                   '{"hours": {"train": "many"}}', '{"hours": {"train": []}}', '{"hours": -3}',
                   '{"hours": {"train": NaN}}', '{"hours": {"train": Infinity}}',
                   '{"hours": 1' + "0" * 400 + "}"):  # fmt: skip
        made.write_bytes(damage.encode(errors="surrogateescape"))
        _, found = doctor(capsys, "--config", str(config))
        assert found["hours"].startswith("warn") and f"{made}: damaged" in found["hours"]
        assert "GB free" in found["disk"] and "needed" not in found["disk"]


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize(
    "wanted, level, told",
    [
        ("", "ok", "main is up, 5 hosts"),
        ("gpu", "fail", "gpu is down"),
        ("fast", "fail", "no partition fast"),
        ("main,fast", "fail", "no partition fast"),
    ],
)
def test_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str, level: str, told: str
) -> None:
    program(tmp_path, "sinfo", "printf 'main*|up|3\\nmain*|up|2\\ngpu|down|1\\n'")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = cluster.partitions(wanted)
    assert found.level == level and told in str(found)


def test_a_host_that_does_not_see_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "srun", "echo not seen; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert "does not see" in str(cluster.other_host(tmp_path, {}))
    program(tmp_path, "srun", "echo srun: error: Invalid account >&2; exit 1")
    found = cluster.other_host(tmp_path, {"slurm_account": "x"})
    assert found.level == "warn" and "Invalid account" in str(found)


@pytest.mark.slow
def test_a_real_cluster(slurm: Slurm, tmp_path: Path) -> None:
    told = slurm(
        *("hadpsgd", "doctor", "--config", str(write(tmp_path)), "--cluster", "slurm"), check=False
    )
    lines = {line[6:].partition(":")[0]: line for line in told.splitlines() if "  " in line}
    assert lines["partition"].startswith("ok    partition: main is up, 3 hosts")
    assert "is seen from" in told, told


def test_folders_of_kaldi_alignments_are_looked_into(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lang, ali = tmp_path / "lang", tmp_path / "ali_train"
    for folder, names in ((lang, needed.FILES), (ali, ("ali.1.gz", "final.mdl", "tree"))):
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()

    def failed(**changes: object) -> dict[str, str]:
        alignment = {"kind": "kaldi", "ali_dir": str(ali), "lang_dir": str(lang)} | changes
        _, found = doctor(capsys, "--config", str(write(tmp_path, alignment=alignment)))
        return {what: line for what, line in found.items() if line.startswith("fail")}

    assert failed() == {}
    of_sets = str(tmp_path / "ali_{set}")
    assert failed(ali_dir=of_sets, align_dev=True) == {}
    found = failed(ali_dir=of_sets)
    said = f"{tmp_path}/ali_dev: no file ali.1.gz. Name the folder that steps/align"
    assert said in found["alignment.ali_dir"]
    assert failed(ali_dir=[str(ali), "gone"]).keys() == {"alignment.ali_dir[1]"}
    assert failed(lang_dir="gone").keys() == {"alignment.lang_dir"}
    (lang / "phones.txt").unlink()
    (ali / "tree").unlink()
    found = failed()
    assert "lang: no file phones.txt. Name the lang folder" in found["alignment.lang_dir"]
    assert "ali_train: no file tree. " in found["alignment.ali_dir"]
