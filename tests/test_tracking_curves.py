"""Curves of a run: the same few for any number of learners, and what they are made of."""

from __future__ import annotations

import json
import math
import sys
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from tracking_data import without_models, write_results, write_rows, write_scores
from training_data import write_config
from training_runs import write_examples

from hadpsgd import cli
from hadpsgd.config import Config, load, run_key
from hadpsgd.decentralized.core.engine import Report
from hadpsgd.decentralized.core.observation import Observation
from hadpsgd.decentralized.core.place import Place
from hadpsgd.models.loss import FrameScore
from hadpsgd.tracking import curves, identity, system
from hadpsgd.tracking.curves import Curves, Samples
from hadpsgd.tracking.events import Metrics
from hadpsgd.tracking.identity import Identity
from hadpsgd.tracking.metrics_file import Row
from hadpsgd.tracking.store import Store
from hadpsgd.tracking.sync import sync
from hadpsgd.training import metrics
from hadpsgd.training.board import SharedBoard
from hadpsgd.training.loop import stopwatch
from hadpsgd.training.progress import Progress

pytestmark = pytest.mark.usefixtures("no_tracking_uri")
MOST = 40
"""Metrics of a run."""


def test_points_against_updates_and_epochs() -> None:
    rows: list[Row] = [
        {"step": 5, "time": 2.5, "epoch": 0.25, "loss": 2.0, "note": "text", "flag": True},
        {"step": 20, "time": 10.0, "epoch": 1.0, "loss": 1.0, "lr": 0.1, "seconds": 9.0},
        {"step": 20, "time": 11.0, "epoch": 1.0, "heldout_loss": float("nan"), "seconds": 9.5},
        {"time": 1.0, "loss": 7.0},
    ]
    found = [(p.name, p.step, p.time_ms) for p in curves.points(rows)]
    assert found == [
        ("loss", 5, 2500),
        ("loss", 20, 10000),
        ("lr", 20, 10000),
        ("epoch/loss", 1, 10000),
        ("epoch/seconds", 1, 10000),
        ("epoch/heldout_loss", 1, 11000),
        ("epoch/seconds", 1, 11000),
    ]
    heldout = [p.value for p in curves.points(rows) if p.name == "epoch/heldout_loss"]
    assert len(heldout) == 1 and math.isnan(heldout[0])


def test_learners_are_told_by_mean_least_and_greatest() -> None:
    row: Row = {"step": 1, "time": 1.0, "epoch": 0.5, "loss": 9.0, "lag_behind_2": 1.5}
    row |= {f"learner_{rank}/loss": value for rank, value in enumerate((2.0, 3.0, 7.0))}
    row |= {f"learner_{rank}/learner_frames_per_second": 10.0 * (rank + 1) for rank in range(2)}
    assert {p.name: p.value for p in curves.points([row])} == {
        "loss": 4.0,
        "loss_min": 2.0,
        "loss_max": 7.0,
        "learner_frames_per_second_min": 10.0,
        "learner_frames_per_second_max": 20.0,
    }
    diverged = {p.name: p.value for p in curves.points([row | {"learner_1/loss": math.nan}])}
    assert all(math.isnan(diverged[name]) for name in ("loss", "loss_min", "loss_max"))
    alone: Row = {"step": 1, "time": 1.0, "loss": 9.0, "learner_0/loss": 9.0}
    assert {p.name for p in curves.points([alone])} == {"loss"}


def test_samples_of_ranks_are_put_together(tmp_path: Path) -> None:
    """Interval by interval, the last one when all has ended; what is told once is told once."""

    def sample(rank: int, time: float, memory: float, use: float) -> None:
        row = {"time": time, "rank": rank, "memory_mib": memory}
        row |= {"cpu_utilization_percentage": use, "gpu_0_memory_usage_megabytes": 10.0 * memory}
        write_rows(tmp_path / f"system.{rank}.jsonl", [row])

    samples = Samples(tmp_path, created=1000.0, every_seconds=5.0)
    sample(0, 1001.0, 10.0, 50.0)
    sample(1, 1004.0, 30.0, 100.0)
    assert list(samples.points(ended=False)) == []
    sample(0, 1006.0, 11.0, 0.0)
    found = list(samples.points(ended=False))
    assert {p.step for p in found} == {0} and {p.time_ms for p in found} == {1_004_000}
    assert {p.name.removeprefix("system/"): p.value for p in found} == {
        "memory_mib": 20.0,
        "memory_mib_min": 10.0,
        "memory_mib_max": 30.0,
        "cpu_utilization_percentage": 75.0,
        "gpu_0_memory_usage_megabytes": 200.0,
    }
    last = list(samples.points(ended=True))
    assert {p.step for p in last} == {5} and list(samples.points(ended=True)) == []


def test_a_rank_samples_its_machine(tmp_path: Path) -> None:
    with system.sampled(tmp_path, rank=3, every_seconds=0.02):
        threading.Event().wait(0.3)
    who = identity.read_or_create(tmp_path)
    [event] = Curves(tmp_path / "metrics.jsonl", who, 5.0).new(ended=True)
    assert isinstance(event, Metrics)
    values = {point.name: point.value for point in event.points}
    used = psutil.Process().memory_info().rss / 2**20
    assert 0.5 * used < values["system/memory_mib"] < 2 * used
    assert {"system/cpu_utilization_percentage", "system/system_memory_usage_percentage"} <= {
        *values
    }


def test_names_and_units_are_those_of_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside MLflow's own monitors, which see the same machine and the same GPU."""
    nvml = fake_nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    from mlflow.system_metrics.metrics import gpu_monitor
    from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor

    monkeypatch.setattr(gpu_monitor, "pynvml", nvml, raising=False)
    theirs: dict[str, float] = {}
    for monitor in (CPUMonitor(), gpu_monitor.GPUMonitor()):
        monitor.collect_metrics()
        theirs |= monitor.aggregate_metrics()
    cuda = SimpleNamespace(mem_get_info=lambda _: (60 * 10**9, 80 * 10**9), utilization=lambda _: 7)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    ours = system.reading(psutil.Process(), gpu=0)
    assert set(ours) == {system.MEMORY, *system.AS_MLFLOW}
    assert set(system.AS_MLFLOW) <= theirs.keys()
    for name in ("gpu_0_utilization_percentage", "gpu_0_memory_usage_megabytes"):
        assert ours[name] == pytest.approx(theirs[name])
    name = "system_memory_usage_percentage"
    assert ours[name] == pytest.approx(theirs[name], abs=20)


def fake_nvml() -> Any:
    """One GPU of 80 GB, 20 of them used, 7 % of the time."""
    return SimpleNamespace(
        NVMLError=RuntimeError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(used=20 * 10**9, total=80 * 10**9),
        nvmlDeviceGetUtilizationRates=lambda _: SimpleNamespace(gpu=7),
        nvmlDeviceGetPowerUsage=lambda _: 350_000,
        nvmlDeviceGetEnforcedPowerLimit=lambda _: 700_000,
    )


def tell(folder: Path, learners: int) -> None:
    """Rows and samples of that many learners of an asynchronous run, each on a GPU, written as
    training writes them: an epoch of 20 updates."""
    notices: dict[str, dict[int, Any]] = {}
    ranks = []
    for rank in range(learners):
        engine: Any = SimpleNamespace(
            place=Place(rank=rank, world=learners),
            ranks=range(learners),
            rounds=0,
            bytes_sent=0,
            observe=lambda rank=rank: Observation(
                distance=0.1 + rank, lags={n: Counter({rank: 1}) for n in range(learners)}
            ),
        )
        file = metrics.Metrics(folder, rank=rank, step=0)
        progress = Progress(
            SharedBoard(rank, notices),
            file,
            engine,
            epoch=0,
            steps_per_epoch=20,
            epochs=1,
            every_seconds=0.0,
            stamp=stopwatch(file),
        )
        ranks.append((progress, metrics.Meter(engine)))
    for step in (10, 20):
        for rank, (progress, meter) in enumerate(reversed(ranks)):
            report = Report(norm=1.0, staleness=rank, exposed=0.0, skipped=False)
            meter.add(loss=2.0 + rank, frames=100, report=report)
            progress.tell(step=step, lr=0.1, meter=meter)
    for progress, _ in reversed(ranks):
        progress.evaluated(FrameScore(loss=2.0, correct=1, frames=2), 1)
        progress.close()
    for rank in range(learners):
        values = dict.fromkeys((system.MEMORY, *system.AS_MLFLOW), 1.0 + rank)
        write_rows(folder / f"system.{rank}.jsonl", [{"time": 1e9, "rank": rank, **values}])


def stored(config: Config, run: str) -> dict[str, float]:
    """What MLflow has of a run of the results folder."""
    config = without_models(config)
    [tracked] = sync(config, None, run=run)
    store = Store(config.tracking.uri, Path(config.results) / "tracking")
    return store.client.get_run(tracked.mlflow_run).data.metrics


@pytest.mark.parametrize("learners", [64, 128])
def test_metrics_of_many_learners(learners: int, mlflow_folder: Path) -> None:
    config = write_results(mlflow_folder)
    folder = mlflow_folder / "demo/runs" / run_key(config, "ssgd-4")
    (folder / "metrics.jsonl").unlink()
    tell(folder, learners)
    summary = {"epochs": 1, "heldout_loss": 1.5, "heldout_accuracy": 0.5}
    (folder / "summary.json").write_text(json.dumps(summary))
    write_scores(config, "ssgd-4")
    found = stored(config, "ssgd-4")
    assert len(found) <= MOST, sorted(found)
    assert (found["loss_min"], found["loss_max"]) == (2.0, 1.0 + learners)
    assert found["loss"] == pytest.approx(2.0 + (learners - 1) / 2)
    assert found["staleness_max"] == learners - 1
    assert found["consensus_distance"] == pytest.approx(0.1 + (learners - 1) / 2)
    assert found["system/gpu_0_utilization_percentage"] == pytest.approx(1 + (learners - 1) / 2)
    assert found["system/memory_mib_max"] == learners
    assert found["epoch/heldout_loss"] == 1.0 and found["final/heldout_loss"] == 1.5
    assert "epoch/seconds" in found and "WER/ch" in found
    store = Store(config.tracking.uri, mlflow_folder / "tracking")
    [experiment] = store.client.search_experiments(filter_string="name = 'demo'")
    [run] = store.client.search_runs([experiment.experiment_id], "tags.kind = 'training'")
    names = [item.path for item in store.client.list_artifacts(run.info.run_id)]
    assert "metrics.jsonl" in names  # each learner's own


def test_metrics_of_virtual_learners(mlflow_folder: Path) -> None:
    """A run that measures all it can, made by `hadpsgd train`."""
    run = {
        "name": "many",
        "strategy": "rand",
        "learners": 8,
        "launcher": "virtual",
        "virtual": {"compute_seconds": 0.5, "model_mib": 1.0},
        "probe": True,
    }
    egs = write_examples(mlflow_folder / "egs")
    rate = {"base": 0.3, "base_batch": 40}
    file = write_config(mlflow_folder, [run], epochs=3, learning_rate=rate)
    uri = f"sqlite:///{mlflow_folder}/mlflow.db"
    text = file.read_text()
    file.write_text(text.replace("every_seconds: 0.2", "{every_seconds: 0.2, uri: none}"))
    config = load(file)
    out = Path(config.results) / config.name / "runs" / run_key(config, "many")
    arguments = ["--config", str(file), "--run-id", "many", "--out", str(out)]
    examples = ["--egs", str(egs / "train"), "--dev-egs", str(egs / "dev")]
    assert cli.main(["train", *arguments, *examples]) == 0
    tracking = config.tracking.model_copy(update={"uri": uri})
    config = config.model_copy(update={"tracking": tracking})
    write_rows(out / "system.0.jsonl", [dict.fromkeys((system.MEMORY, *system.AS_MLFLOW), 1.0)
                                        | {"time": 1e9}])  # fmt: skip
    write_scores(config, "many", dict.fromkeys(("dev", "swb", "ch"), (1, 1, 1)))
    found = stored(config, "many")
    assert len(found) <= MOST, sorted(found)
    probed = {f"epoch/probe_{name}" for name in ("difference_noise", "sharpness")}
    wanted = {"epoch/distance_from_mean", "epoch/virtual_seconds", "loss_min", "WER/swb"}
    assert wanted | probed <= found.keys()
    assert found["loss_min"] <= found["loss"] <= found["loss_max"]


def test_identity_decides_the_seconds(tmp_path: Path) -> None:
    """A resumed run's samples go on behind those of before."""
    write_rows(tmp_path / "system.0.jsonl", [{"time": 5000.0, "memory_mib": 1.0}])
    who = Identity("k", 1000.0)
    [event] = Curves(tmp_path / "metrics.jsonl", who, 10.0).new(ended=True)
    assert isinstance(event, Metrics)
    assert [(p.name, p.step) for p in event.points] == [("system/memory_mib", 4000)]
