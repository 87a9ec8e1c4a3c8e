"""Virtual learners as a run of the config: the same weights as processes, resumed, replayed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from simulated_task import Small
from training_data import write_config
from training_runs import finish, weights, write_examples
from virtual_training import KINDS, arguments, run_of_kind

from hadpsgd.cli import main
from hadpsgd.config import load
from hadpsgd.config.requests import request_of
from hadpsgd.decentralized.network.speeds import ComputeTimes, LinkTimes
from hadpsgd.decentralized.record import reading
from hadpsgd.decentralized.simulated.simulation import Node, Setting, Simulation, Step
from hadpsgd.decentralized.strategies import registry
from hadpsgd.decentralized.strategies.registry import Choice
from hadpsgd.decentralized.topology.schedules import create
from hadpsgd.errors import UserError
from hadpsgd.reports import table
from hadpsgd.reports.rows import of_results as rows_of_table
from hadpsgd.tracking import training_run
from hadpsgd.tracking.results import read_results
from hadpsgd.training import virtual
from hadpsgd.training.end import End
from hadpsgd.training.gradients import Gradients
from hadpsgd.training.job import Job, assemble
from hadpsgd.training.saved import newest_sound

SHARED = ("adpsgd", "adpsgd-drawn", "rand", "hadpsgd")
"""Their learners share their work: the slow one does less."""


@pytest.fixture(scope="module")
def egs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Examples to train on and held-out ones."""
    return write_examples(tmp_path_factory.mktemp("egs"))


def train(folder: Path, egs: Path, run: dict[str, Any], **training: Any) -> torch.Tensor:
    """`hadpsgd train` of a virtual run in this process; the final model's weights."""
    assert main(arguments(folder, egs, run, **training)) == End.DONE
    return weights(folder / "out")


def rows(folder: Path, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    """Rows of metrics, without the moment of their writing."""
    found = [json.loads(line) for line in (folder / "out" / name).read_text().splitlines()]
    return [{key: row[key] for key in row if key != "time"} for row in found]


@pytest.mark.parametrize("kind", KINDS)
def test_learns_and_leaves_what_any_run_leaves(kind: str, egs: Path, tmp_path: Path) -> None:
    train(tmp_path, egs, run_of_kind(kind))
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    shared = kind in SHARED
    assert summary["simulated"] is True and (summary["steps"] == 30 or shared)
    assert summary["heldout_accuracy"] > (0.3 if "d1d" in kind else 0.5)
    # 30 gradients of 0.5 s, of the slow learner 1.5 s, and whatever was waited for; or 120
    # gradients of three learners that make 2 a second and one that makes 2/3; of super-learners,
    # 60 of one that makes 2 and one that makes 2/3
    blocks, speed = (60, 2 + 2 / 3) if kind == "hadpsgd" else (120, 6 + 2 / 3)
    least = 30 * 0.5 if kind == "single" else blocks / speed if shared else 30 * 1.5
    assert 0.8 * least < summary["virtual_seconds"] < 2 * least
    found = rows(tmp_path)
    scores = [row for row in found if "heldout_loss" in row]
    assert [row["epoch"] for row in scores] == [1, 2, 3]
    assert scores[-1]["heldout_loss"] < scores[0]["heldout_loss"]
    moments = [row["virtual_seconds"] for row in found if "virtual_seconds" in row]
    assert moments == sorted(moments) and moments[-1] <= summary["virtual_seconds"]
    told = [row for row in found if "loss" in row]
    assert all(0 <= row["share_communication"] <= 1 for row in told)
    sends = {"single": 0}.get(kind, 1)
    assert any(row["megabytes_sent_per_step"] > 0 for row in told) == sends


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ssgd", "dpsgd", "d1d", "noloco", "hadpsgd-dpsgd"])
def test_the_weights_are_those_of_real_processes(kind: str, egs: Path, tmp_path: Path) -> None:
    """On one schedule: the time that things take decides nothing of a synchronous strategy."""
    settings: dict[str, Any] = {"momentum": 0.9, "weight_decay": 1e-3, "clip_norm": 0.5}
    settings["learning_rate"] = {"base": 0.2, "base_batch": 40}
    ours = train(tmp_path / "virtual", egs, run_of_kind(kind), **settings)
    real = {"hadpsgd-dpsgd": "hadpsgd-2x2-dpsgd"}.get(kind, f"{kind}-4")
    assert torch.equal(ours, finish(tmp_path / "real", egs, real, **settings))


def stop_at(
    monkeypatch: pytest.MonkeyPatch, node: int, step: int, stop: Callable[[], object]
) -> None:
    """Call `stop` after that update of a node."""
    stepped = virtual.Part._stepped

    def then_stop(part: virtual.Part, at: Node, done: Step) -> None:
        stepped(part, at, done)
        if (at.index, done.step) == (node, step):
            stop()

    monkeypatch.setattr(virtual.Part, "_stepped", then_stop)


class Died(BaseException):
    """In place of a process's death: nothing catches it."""


def die() -> None:
    raise Died


@pytest.mark.parametrize(
    "kind", ["ssgd", "adpsgd", "adpsgd-drawn", "d1d", "local", "noloco", "sgp", "hadpsgd"]
)
def test_a_run_that_died_ends_with_the_bits_of_one_that_did_not(
    kind: str, egs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice: before there is a checkpoint, and after; weights, curves, time and record are one."""
    run = run_of_kind(kind)
    whole = train(tmp_path / "whole", egs, run)
    for step in (5, 17):
        with monkeypatch.context() as context:
            stop_at(context, 0, step, die)
            with pytest.raises(Died):
                train(tmp_path / "broken", egs, run)
    with monkeypatch.context() as context:  # the checkpoint knows what is done
        context.setattr(reading, "_entries", lambda *_: pytest.fail("it read a record to resume"))
        assert torch.equal(train(tmp_path / "broken", egs, run), whole)
    for name in ("metrics.jsonl", "metrics.rank1.jsonl"):
        # a row of an epoch may stay from the part that was lost, and stand earlier
        broken, told = (
            sorted(json.dumps(row) for row in rows(tmp_path / place, name))
            for place in ("broken", "whole")
        )
        assert broken == told
    found = [
        {path.name: path.read_bytes() for path in (tmp_path / name).rglob("record/*.bin")}
        for name in ("whole", "broken")
    ]
    assert found[0] == found[1] and len(found[0]) == 4 // run.get("super_learner", 1)
    summaries = [
        json.loads((tmp_path / name / "out/summary.json").read_text())
        for name in ("whole", "broken")
    ]
    assert summaries[0]["virtual_seconds"] == summaries[1]["virtual_seconds"]


def test_a_signal_ends_it_and_the_same_command_goes_on(
    egs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of_kind("rand")
    whole = train(tmp_path / "whole", egs, run)
    with monkeypatch.context() as context:
        stop_at(context, 2, 14, lambda: os.kill(os.getpid(), signal.SIGTERM))
        assert main(arguments(tmp_path / "broken", egs, run)) == End.REQUEUE
    assert torch.equal(train(tmp_path / "broken", egs, run), whole)
    assert "resumes from checkpoint" in capsys.readouterr().err


KILLED = """
import os, signal, sys
from hadpsgd.cli import main
from hadpsgd.training import virtual
from hadpsgd.training.saved import newest_sound

stepped = virtual.Part._stepped

def then_die(part, node, done):
    stepped(part, node, done)
    if (node.index, done.step) == (0, 17):
        os.kill(os.getpid(), signal.SIGKILL)

virtual.Part._stepped = then_die
main(sys.argv[1:])
"""


def test_kill_9_and_the_same_command_goes_on(egs: Path, tmp_path: Path) -> None:
    run = run_of_kind("adpsgd")
    command = [sys.executable, "-c", KILLED, *arguments(tmp_path / "broken", egs, run)]
    done = subprocess.run(command, stderr=subprocess.DEVNULL, check=False, timeout=300)
    assert done.returncode == -signal.SIGKILL
    assert list((tmp_path / "broken").rglob("node-0.*-of-*.pt"))
    resumed = train(tmp_path / "broken", egs, run)
    assert torch.equal(resumed, train(tmp_path / "whole", egs, run))


@pytest.mark.parametrize("kind", ["ssgd", "rand", "adpsgd-drawn", "local", "hadpsgd"])
def test_its_record_is_replayed_to_the_same_bits(kind: str, egs: Path, tmp_path: Path) -> None:
    """By code that knows nothing of virtual time."""
    train(tmp_path, egs, run_of_kind(kind), momentum=0.9)
    replay = ["replay", "--config", str(tmp_path / "config.yaml"), "--run-id", kind]
    assert main([*replay, "--egs", str(egs / "train")]) == 0


def test_asynchronous_learners_share_their_work(egs: Path, tmp_path: Path) -> None:
    """Over all parts of the run, every block is done once, and by the slow learner fewest."""
    train(tmp_path, egs, run_of_kind("rand"))
    plan = create("random-ring", learners=4, seed=3)
    files = {int(path.stem[-1]): path for path in tmp_path.rglob("record/node-*.bin")}
    done = [reading.blocks(files[node], plan, node=node) for node in range(4)]
    assert sorted(block for own in done for block in own) == list(range(120))
    assert len(done[1]) < 20 and min(len(done[node]) for node in (0, 2, 3)) > 30


@pytest.mark.parametrize("policy", ["stop", "skip"])
@pytest.mark.parametrize("kind", ["ssgd", "adpsgd", "d1d", "hadpsgd"])
def test_a_gradient_that_is_not_finite(
    kind: str,
    policy: str,
    egs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    take = Gradients.take

    def spoilt(self: Gradients, x: Any, targets: Any, *, rank: int, step: int) -> float:
        if (rank, step) == (3, 4):
            x = x * torch.nan
        return float(take(self, x, targets, rank=rank, step=step))

    monkeypatch.setattr(Gradients, "take", spoilt)
    code = main(arguments(tmp_path, egs, run_of_kind(kind), not_finite=policy))
    if policy == "stop":
        assert code == 2
        named = "2 or 3" if kind == "hadpsgd" else "3"
        found = re.search(r"gradient of learner (.*) is not", capsys.readouterr().err)
        assert found and (found[1] == named or kind in SHARED)
    else:
        assert code == 0
        skipped = [
            sum(row.get("skipped", 0) for row in rows(tmp_path, path.name))
            for path in (tmp_path / "out").glob("metrics*.jsonl")
        ]
        assert sum(skipped) == (4 if kind == "ssgd" else 1)


def test_times_of_the_config_are_those_of_the_simulation(egs: Path, tmp_path: Path) -> None:
    run = run_of_kind("hadpsgd")
    run["injected"]["slow_links"] = {1: 4.0}
    job = assemble_only(tmp_path, egs, run)
    assert job.virtual is not None
    setting = job.virtual.setting
    assert (setting.size, setting.inside_seconds, setting.model_bytes) == (2, 0.01, 2**20)
    assert setting.compute.seconds == 0.5 and setting.compute.factors == {1: 3.0}
    assert (setting.compute.spread, setting.compute.deviation) == ("lognormal", 0.2)
    assert setting.links.latency == 0.001 and setting.links.bandwidth == 100e6 / 8
    assert setting.links.factors == {1: 4.0}
    other = assemble_only(tmp_path, egs, {**run, "virtual": {}}).virtual
    assert other is not None and other.setting.model_bytes is None


def assemble_only(folder: Path, egs: Path, run: dict[str, Any]) -> Job:
    config = load(write_config(folder, [run]))
    return assemble(config, run["name"], egs=egs / "train", dev_egs=egs / "dev", out=folder / "out")


def test_it_is_one_process_and_says_that_its_time_is_virtual(tmp_path: Path) -> None:
    plain: dict[str, Any] = {"strategy": "adpsgd", "learners": 4}
    both = [plain, {**plain, "launcher": "virtual"}]
    config = load(write_config(tmp_path, both, site={"learners_per_node": 2}))
    assert [run.id for run in config.training.members] == ["adpsgd-4", "adpsgd-4-virtual"]
    asked = [request_of(config, run.id) for run in config.training.members]
    assert [(r["nodes"], r["cpus_per_task"]) for r in asked] == [(2, 2), (1, 1)]
    told = [training_run.tags(config, run.id)["time"] for run in config.training.members]
    assert told == ["real", "virtual"]
    found = rows_of_table(read_results(config), [])
    page = table.page(config, found, "", [])
    assert "| adpsgd, virtual time |" in page and "| adpsgd               |" in page
    assert page.count(table.VIRTUAL) == 1
    assert table.VIRTUAL not in table.page(config, found[:1], "", [])


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ({"strategy": "ddp", "learners": 4, "launcher": "virtual"}, "it has no virtual learners"),
        ({"virtual": {"compute_seconds": 0.5}}, "a run whose launcher is virtual"),
        ({"launcher": "virtual", "virtual": {"compute_seconds": 0.0}}, "compute_seconds"),
    ],
)
def test_what_cannot_be(run: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        load(write_config(tmp_path, [run]))


@pytest.mark.parametrize("schedule", ["ring", "random-ring", "pairwise"])
def test_a_checkpoint_makes_nobody_mix_more(schedule: str) -> None:
    """News of a stop would need 8 rounds around this ring, and no gradients between them."""
    setting = Setting(
        strategy=registry.create(Choice(strategy="adpsgd")),
        schedule=create(schedule, learners=16, seed=3),
        compute=ComputeTimes(seconds=1.0),
        links=LinkTimes(latency=0.01),
    )

    def stop(node: Node, step: Step) -> None:
        if (node.index, step.step) == (0, 5):
            simulation.request_stop()

    simulation = Simulation(setting, Small(), on_step=stop)
    simulation.run(steps=100)
    rounds = {node.engine.rounds for node in simulation.nodes}
    assert len(rounds) == 1 and rounds.pop() <= 8
    assert all(6 <= node.engine.steps <= 8 for node in simulation.nodes)


def test_the_distance_from_the_mean_is_that_of_the_checkpoint(egs: Path, tmp_path: Path) -> None:
    """At each epoch, of the states as they are written then."""
    train(tmp_path, egs, run_of_kind("dpsgd"), epochs=2)
    found = {row["epoch"]: row for row in rows(tmp_path) if "distance_from_mean" in row}
    assert found.keys() == {1.0, 2.0}
    [folder] = (tmp_path / "results" / "checkpoints").glob("*/dpsgd-*")
    saved = newest_sound(folder)
    assert saved is not None
    weights = torch.stack([saved.load(node)["weights"] for node in saved.parts()])
    mean = weights.mean(0)
    apart = (weights - mean).square().sum(1).mean().sqrt() / mean.norm()
    assert len(weights) == 4 and apart > 1e-4
    assert found[2.0]["distance_from_mean"] == pytest.approx(float(apart), rel=1e-5)
