"""Spool, events, identity, metrics file, checksums, provenance: all without MLflow."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tracking_data import make_config, metric_rows, write_rows

from hadpsgd.config import Config, check
from hadpsgd.errors import UserError
from hadpsgd.tracking import checksums as sums
from hadpsgd.tracking import identity, provenance, training_run, uri
from hadpsgd.tracking.events import (
    Artifact,
    Begin,
    Event,
    Finish,
    Metrics,
    Params,
    Point,
    Tags,
    from_json,
    to_json,
)
from hadpsgd.tracking.metrics_file import GrowingFile
from hadpsgd.tracking.spool import Spool, keys_waiting


class Collector:
    """A store that can be switched off."""

    def __init__(self) -> None:
        self.got: list[Event] = []
        self.alive = True

    def __call__(self, events: Iterable[Event]) -> None:
        for event in events:
            if not self.alive:
                raise ConnectionError("down")
            self.got.append(event)


def tag(value: object) -> Tags:
    return Tags(values={"n": str(value)})


def test_spool_keeps_order_over_outages(tmp_path: Path) -> None:
    spool, store = Spool(tmp_path, key="k"), Collector()
    store.alive = False
    for number in range(3):
        with pytest.raises(ConnectionError):
            spool.deliver([tag(number)], store)
    assert list(spool.waiting()) == [tag(0), tag(1), tag(2)]
    assert keys_waiting(tmp_path) == ["k"]
    store.alive = True
    spool.deliver([tag(3)], store)
    assert store.got == [tag(n) for n in range(4)]
    assert spool.is_empty() and keys_waiting(tmp_path) == []


def test_spool_keeps_all_of_what_was_refused(tmp_path: Path) -> None:
    """Several events at once, refused at the first, in the middle or at the last."""
    events = [tag(n) for n in range(4)]
    for accepted in range(4):
        spool = Spool(tmp_path / str(accepted), key="k")
        got: list[Event] = []

        def send(sent: Iterable[Event], got: list[Event] = got, room: int = accepted) -> None:
            for event in sent:
                if len(got) == room:
                    raise ConnectionError("down")
                got.append(event)

        with pytest.raises(ConnectionError):
            spool.deliver(events, send)
        assert list(spool.waiting()) == events  # applying some of them again changes nothing
        store = Collector()
        spool.deliver([tag(9)], store)
        assert store.got == [*events, tag(9)]


def test_spool_copies_artifacts_that_may_go(tmp_path: Path) -> None:
    original = tmp_path / "table.md"
    original.write_text("one")
    spool, store = Spool(tmp_path / "spool", key="k"), Collector()
    spool.add([Artifact(path=str(original), folder="report")])
    original.unlink()
    seen: list[str] = []
    spool.deliver([], lambda events: seen.extend(Path(e.path).read_text() for e in events))  # type: ignore[union-attr]
    assert seen == ["one"]
    assert store.got == [] and not (tmp_path / "spool/k/files").exists()


def test_spool_after_a_kill_in_mid_line(tmp_path: Path) -> None:
    spool = Spool(tmp_path, key="k")
    spool.add([tag(1)])
    with (tmp_path / "k/events.jsonl").open("a") as stream:
        stream.write('{"kind": "tags", "val')
    spool.add([tag(2)])
    assert list(spool.waiting()) == [tag(1), tag(2)]


def test_spool_names_a_broken_line(tmp_path: Path) -> None:
    spool = Spool(tmp_path, key="k")
    spool.add([tag(1)])
    with (tmp_path / "k/events.jsonl").open("a") as stream:
        stream.write("nonsense\n")
    with pytest.raises(UserError, match=r"events\.jsonl:2: not a record"):
        list(spool.waiting())


def test_spool_shared_by_writers(tmp_path: Path) -> None:
    def write(number: int) -> None:
        spool = Spool(tmp_path, key="k")
        for count in range(20):
            spool.add([tag(f"{number}-{count}")])

    threads = [threading.Thread(target=write, args=(n,)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({to_json(event) for event in Spool(tmp_path, key="k").waiting()}) == 100


def test_spool_of_a_run_that_was_killed_with_its_follower(tmp_path: Path) -> None:
    """Its last word is the follower's to say while there is one."""
    spool, store = Spool(tmp_path, key="k", store="sqlite:///a"), Collector()
    killed = Finish(status="KILLED", time_ms=1)
    with spool.followed():
        spool.leave_last_word(killed)
        other = Spool(tmp_path, key="k", store="sqlite:///a")
        assert other.is_followed() and keys_waiting(tmp_path) == []
        spool.deliver([tag(1)], store)
        other.upload(store)
    assert store.got == [tag(1)] and keys_waiting(tmp_path) == ["k"]
    assert keys_waiting(tmp_path, "sqlite:///b") == []
    store.alive = False
    for _ in range(2):
        with pytest.raises(ConnectionError):
            other.upload(store)
    store.alive = True
    other.upload(store)
    assert store.got == [tag(1), killed] and keys_waiting(tmp_path, "sqlite:///a") == []


@given(st.lists(st.floats(), min_size=1, max_size=5), st.text(max_size=20))
def test_events_survive_json(values: list[float], text: str) -> None:
    points = [Point(name="a", value=v, step=i, time_ms=i) for i, v in enumerate(values)]
    back = from_json(to_json(Metrics(points=points)))
    assert isinstance(back, Metrics)
    for old, new in zip(points, back.points, strict=True):
        assert new.value == old.value or (math.isnan(new.value) and math.isnan(old.value))
    assert from_json(to_json(Params(values={"x": text}))) == Params(values={"x": text})


def test_event_of_unknown_kind_is_refused() -> None:
    with pytest.raises(ValidationError):
        from_json('{"kind": "other"}')


def test_identity_stays_with_the_checkpoints(tmp_path: Path) -> None:
    assert identity.read(tmp_path) is None
    first = identity.read_or_create(tmp_path)
    assert identity.read_or_create(tmp_path) == first == identity.read(tmp_path)
    assert identity.read_or_create(tmp_path / "other").key != first.key


def test_growing_file_gives_each_complete_line_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    growing = GrowingFile(path)
    assert list(growing.rows()) == []
    rows = metric_rows("single")
    write_rows(path, rows[:3])
    with path.open("a") as stream:
        stream.write('{"step": 99')
    assert list(growing.rows()) == rows[:3]
    with path.open("a") as stream:
        stream.write(', "time": 1}\nnot json\n[1]\n')
    assert list(growing.rows()) == [{"step": 99, "time": 1}]
    path.write_text(json.dumps(rows[0]) + "\n")  # a resumed training cut it
    assert list(growing.rows()) == rows[:1]


def test_checksum_cache_reads_only_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data/train").mkdir(parents=True)
    (tmp_path / "data/train/text").write_text("a b\n")
    (tmp_path / "data/.hidden").write_text("x")
    cache = tmp_path / "cache.json"
    first = sums.checksums(tmp_path, ["data", "missing"], cache)
    assert list(first) == ["data/train/text"]
    # sha256sum's answer for "a b\n"
    assert first["data/train/text"].startswith("sha256:01186fcf04b4b447f393e552")
    read: list[Path] = []

    def reads(path: Path, *_: object) -> str:
        read.append(path)
        return "sha256:new"

    monkeypatch.setattr(sums, "checksum", reads)
    assert sums.checksums(tmp_path, ["data"], cache) == first and read == []
    (tmp_path / "data/train/text").write_text("a b c\n")
    assert sums.checksums(tmp_path, ["data"], cache) != first and len(read) == 1


def test_a_file_that_changes_without_growing_is_read_again(tmp_path: Path) -> None:
    file, cache = tmp_path / "data/text", tmp_path / "cache.json"
    file.parent.mkdir()
    file.write_text("a b\n")
    os.utime(file, ns=(1, 10**18))
    first = sums.checksums(tmp_path, ["data"], cache)
    file.write_text("c d\n")
    os.utime(file, ns=(1, 10**18 + 1_000_000))
    assert sums.checksums(tmp_path, ["data"], cache) != first


def test_large_files_are_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "WHOLE", 100)
    path = tmp_path / "feats.ark"
    content = bytearray(os.urandom(3 * 2**20))
    path.write_bytes(content)
    before = sums.checksum(path)
    assert before.startswith("sampled:") and sums.checksum(path) == before
    content[-1] ^= 1
    path.write_bytes(content)
    assert sums.checksum(path) != before


def test_provenance_names_code_lock_and_hides_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "secret[1-2]")
    config = make_config(tmp_path)
    found = provenance.collect(config)
    root = Path(__file__).parents[1]
    git = ["git", "-C", str(root), "rev-parse", "HEAD"]
    head = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    assert found["code"]["commit"] == head
    assert len(found["lock"]) == 64 and found["packages"]["torch"]
    assert found["slurm"] == {"job_id": "17"}
    text = json.dumps(found)
    assert "secret" not in text and os.uname().nodename not in found["machine"].values()
    said = provenance.origin(found)
    assert head[:12] in said and found["machine"]["processor"] in said
    assert found["arithmetic"]["instructions"] in said and "torch 2" in said
    shown = provenance.machine(hostnames=True)
    assert shown["host"] == os.uname().nodename
    tags = provenance.tags(found)
    assert tags["slurm.job_id"] == "17" and tags["mlflow.source.git.commit"] == head


def test_diff_rebuilds_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> None:
        identity_ = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", "-C", str(repo), *identity_, *arguments], check=True)

    repo = tmp_path / "repo"
    repo.mkdir()
    git("init", "-q")
    (repo / "old.py").write_text("a = 1\n")
    git("add", "old.py")
    git("commit", "-qm", "first")
    (repo / "old.py").write_text("a = 2\n")
    (repo / "workflow").mkdir()
    (repo / "workflow/new.py").write_text("b = 1\n")
    monkeypatch.setattr(provenance, "repository", lambda: repo)
    difference = provenance.diff()
    assert provenance.code()["dirty"]
    git("stash", "-q", "-u")
    (tmp_path / "d").write_text(difference)
    git("apply", str(tmp_path / "d"))
    assert (repo / "old.py").read_text() == "a = 2\n"
    assert (repo / "workflow/new.py").read_text() == "b = 1\n"


def test_a_users_own_config_is_no_change_of_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "configs").mkdir()
    for name in ("mine.yaml", "configs/mine.yaml", "notes.py"):
        (tmp_path / name).write_text("name: secret\n")
    monkeypatch.setattr(provenance, "repository", lambda: tmp_path)
    assert provenance.diff() == "" and not provenance.code()["dirty"]
    for name in ("profiles/x/site.yaml", "envs/x.yaml", "workflow/rules/x.smk", "Snakefile"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("new: 1\n")
        assert name in provenance.diff() and provenance.code()["dirty"]
        file.unlink()


def test_the_data_of_a_run_are_what_its_weights_depend_on(tmp_path: Path) -> None:
    """Test sets come before or after training, so a rerun has none when data are compared."""
    config = make_config(tmp_path)
    base = tmp_path / config.results / config.name
    stream = config.features.input[0]
    for folder in ("corpus/data", f"feats/{stream}"):
        for name in ("train", "dev", "train_perturbed", "swb", "ch"):
            (base / folder / name).mkdir(parents=True)
            (base / folder / name / "text").write_text(name)
    (base / "egs/train").mkdir(parents=True)
    (base / "egs/train/meta.json").write_text("{}")
    sets = {Path(name).parts[-2] for name in provenance.collect(config)["data"]}
    assert sets == {"train", "dev", "train_perturbed"}


def test_parameters_of_a_run_are_flat_and_its_own(tmp_path: Path) -> None:
    values = training_run.parameters(make_config(tmp_path), "hadpsgd-2x2")
    assert values["run.strategy"] == "hadpsgd" and values["run.super_learner"] == "2"
    assert values["training.batch"] == "64" and values["corpus.kind"] == "builtin"
    assert not any(name.startswith(("training.runs", "tracking", "results")) for name in values)


def test_first_event_is_the_beginning(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    who = identity.read_or_create(tmp_path)
    training_run.write_provenance(config, tmp_path)
    events = list(training_run.begin(config, "ssgd-4", tmp_path, who))
    assert isinstance(events[0], Begin) and events[0].name == "ssgd-4"
    artifacts = {Path(event.path).name for event in events if isinstance(event, Artifact)}
    assert {"config.yaml", "provenance.json"} <= artifacts


@pytest.mark.parametrize(
    "wrong", ["mlruns", "file:///tmp/x", "sqlite:/x.db", "sqlite:///", "ftp://h", "http:/h"]
)
def test_wrong_tracking_uri_is_one_line(
    wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="not a tracking URI") as caught:
        check({"name": "x", "corpus": {"kind": "builtin"}, "tracking": {"uri": wrong}}, "c.yaml")
    assert "\n" not in str(caught.value)
    monkeypatch.setenv(uri.VARIABLE, wrong)
    with pytest.raises(UserError, match="MLFLOW_TRACKING_URI: not a tracking URI"):
        uri.tracking_uri(make_config(tmp_path))


def test_environment_goes_before_the_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config: Config = make_config(tmp_path)
    monkeypatch.delenv(uri.VARIABLE, raising=False)
    assert uri.tracking_uri(config) == config.tracking.uri
    monkeypatch.setenv(uri.VARIABLE, "http://server:5000")
    assert uri.tracking_uri(config) == "http://server:5000"


def test_passwords_are_not_shown() -> None:
    assert uri.redacted("postgresql://u:s3cret@h/db") == "postgresql://u:***@h/db"
    assert uri.redacted("http://server:5000") == "http://server:5000"


def test_tracking_does_not_import_mlflow() -> None:
    """MLflow's import costs seconds: nothing that training touches may do it."""
    code = (
        "import sys; import hadpsgd.tracking.follower, hadpsgd.tracking.sync, "
        "hadpsgd.tracking.command; print('mlflow' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
