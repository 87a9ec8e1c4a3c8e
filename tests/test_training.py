"""The training command end to end, on a tiny task: results, and what it refuses."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo  # DDP would import it in every process, for seconds
import torch.distributed as dist
from processes import Outcome, collect, free_port, launch, run
from training_data import write_config
from training_runs import (
    IDS,
    RUNS,
    SYNCHRONOUS,
    finish,
    learners,
    rank_of_run,
    write_examples,
)

from hadpsgd.cli import main
from hadpsgd.config import load
from hadpsgd.config.settings import LearningRate
from hadpsgd.decentralized.core.engine import NotFiniteError
from hadpsgd.decentralized.network import rendezvous
from hadpsgd.errors import UserError
from hadpsgd.models.build import load_model
from hadpsgd.training import command, divergence
from hadpsgd.training.evaluation import pick_device
from hadpsgd.training.job import assemble
from hadpsgd.training.loop import train
from hadpsgd.training.rate import rate

pytestmark = pytest.mark.usefixtures("unrecorded")


@pytest.fixture(scope="module")
def egs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Examples to train on and held-out ones."""
    return write_examples(tmp_path_factory.mktemp("egs"))


@pytest.mark.parametrize("run_id", IDS)
def test_learns_and_leaves_its_files(run_id: str, egs: Path, tmp_path: Path) -> None:
    # a gradient that is a round late bears a smaller step
    gentle = {"learning_rate": {"base": 0.2, "base_batch": 40}, "epochs": 12}
    settings: dict[str, Any] = gentle if run_id == "d1d-4" else {}
    finish(tmp_path, egs, run_id, **settings)
    out = tmp_path / "out"
    summary = json.loads((out / "summary.json").read_text())
    epochs = settings.get("epochs", 3)
    assert summary["run"] == run_id and summary["steps"] == 10 * epochs
    assert summary["heldout_accuracy"] > 0.5 and summary["heldout_loss"] < 1.4
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    scores = [row for row in rows if "heldout_loss" in row]
    assert [row["epoch"] for row in scores] == [*range(1, epochs + 1)]
    assert scores[-1]["heldout_loss"] < scores[0]["heldout_loss"]
    if run_id == "hadpsgd-2x2-dpsgd":  # of adpsgd a learner does as much as its speed allows
        sees_its_mixes([row for row in rows if "loss" in row])
    _, meta = load_model(out / "final.pt")
    counts = np.load(egs / "train" / "pdf_counts.npy")
    np.testing.assert_allclose(meta.log_priors.exp(), counts / counts.sum(), rtol=1e-5)


def sees_its_mixes(rows: list[dict[str, Any]]) -> None:
    """Rank 0 tells of its neighbours, of its time and, as far as they told, of the others."""
    assert any(0 < row.get("consensus_distance", 0) < 1 for row in rows)
    assert any("lag_behind_1" in row for row in rows)
    for row in rows:
        shares = [row[f"share_{what}"] for what in ("compute", "communication", "data")]
        assert sum(shares) == pytest.approx(1, abs=0.05)
        if row["mixes_per_step"]:
            assert row["megabytes_sent_per_step"] > 0
    assert sum(count for row in rows for count in row["staleness_counts"].values()) == 30
    told = [name for name in rows[-1] if name.endswith("/learner_frames_per_second")]
    assert len(told) == 4
    assert rows[-1]["frames_per_second"] == pytest.approx(sum(rows[-1][name] for name in told))


@pytest.mark.parametrize("run_id", SYNCHRONOUS)
def test_same_seed_same_bits(run_id: str, egs: Path, tmp_path: Path) -> None:
    first = finish(tmp_path / "a", egs, run_id)
    assert torch.equal(first, finish(tmp_path / "b", egs, run_id))


def failures(outcomes: dict[int, Outcome]) -> list[str]:
    """First lines of what went wrong."""
    return [o.error.splitlines()[0] for o in outcomes.values() if o.error]


def test_missing_rank_is_named(egs: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, RUNS, site={"rendezvous_seconds": 1})
    started = launch(4, rank_but_two, config, egs, tmp_path / "out")
    errors = failures(collect(started))
    assert len(errors) == 3
    assert all("rank 2 did not come within 1 s" in error for error in errors)


def rank_but_two(rank: int, config: Path, egs: Path, out: Path) -> None:
    """Rank 2 never starts."""
    if rank != 2:
        assemble(load(config), "adpsgd-4", egs=egs / "train", dev_egs=egs / "dev", out=out)


def test_other_config_is_named(egs: Path, tmp_path: Path) -> None:
    one = write_config(tmp_path / "one", RUNS)
    other = write_config(tmp_path / "other", RUNS, momentum=0.6)
    started = launch(4, rank_with_own_config, [one, one, one, other], egs, tmp_path / "out")
    errors = failures(collect(started))
    assert len(errors) == 4
    assert all("rank 3 runs another config or model than rank 0" in error for error in errors)


def rank_with_own_config(rank: int, configs: list[Path], egs: Path, out: Path) -> None:
    """Each rank reads its own config."""
    assemble(load(configs[rank]), "adpsgd-4", egs=egs / "train", dev_egs=egs / "dev", out=out)


def test_rank_0_that_never_starts(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """One line: nothing of torch's own complaints, which come with a C++ stack."""
    for name, value in (("RANK", 1), ("WORLD_SIZE", 2), ("MASTER_PORT", free_port())):
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    with pytest.raises(UserError, match="rank 1 cannot reach the store: no answer within 1 s"):
        rendezvous.meet(learners=2, size=1, agree_on="same", seconds=1.0)
    assert not capfd.readouterr().err


def test_two_trainings_at_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one leaves the first alone."""
    port = free_port()
    store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    env = {"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in env.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(UserError, match=f":{port}: another process listens at this port"):
        rendezvous.meet(learners=2, size=1, agree_on="same", seconds=1.0)
    rendezvous._greet(store, 0, 1, "mine", 1.0)
    with pytest.raises(UserError, match="another process is rank 0 here already"):
        rendezvous._greet(store, 0, 1, "other", 1.0)
    assert store.get("hello/0") == b"mine"


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "MASTER_PORT"])
def test_a_place_that_is_no_number(name: str) -> None:
    env = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    with pytest.raises(UserError, match=f"{name}=two is not a number"):
        rendezvous.environment(env | {name: "two"})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"RANK": "5"}, "RANK=5 of WORLD_SIZE=2: ranks go from 0 to WORLD_SIZE - 1"),
        ({"WORLD_SIZE": "0"}, "RANK=0 of WORLD_SIZE=0"),
        ({"MASTER_PORT": "99999"}, "MASTER_PORT=99999 is no port: there are 1 to 65535"),
        ({"RANK": None}, "WORLD_SIZE=2 and .*, but RANK is not set"),
        ({"MASTER_ADDR": None, "WORLD_SIZE": None}, "MASTER_ADDR is not set"),
    ],
)
def test_an_environment_that_is_left_of_something_else(
    changes: dict[str, str | None], told: str
) -> None:
    env = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    left = {name: value for name, value in (env | changes).items() if value is not None}
    with pytest.raises(UserError, match=told):
        rendezvous.environment(left)


def test_one_process_needs_no_environment() -> None:
    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    for env in ({}, {"WORLD_SIZE": "1"}, {"SLURM_PROCID": "0", "SLURM_NTASKS": ""}):
        assert rendezvous.environment(env) == alone


@pytest.mark.parametrize(
    ("hosts", "job", "address", "port"),
    [
        ("n1", "7", "n1", "12113"),
        ("gpu[07-09,12],other", "7", "gpu07", "12113"),
        ("gpu[3]-ib", "2500", "gpu3-ib", "12001"),
        ("a,b", "12500", "a", "12001"),
    ],
)
def test_where_the_tasks_of_a_slurm_step_meet(
    hosts: str, job: str, address: str, port: str
) -> None:
    """One command is enough: the first host, a port of the step's own."""
    env = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_JOB_ID": job, "SLURM_STEP_ID": "1"}
    found = rendezvous.environment(env | {"SLURM_STEP_NODELIST": hosts})
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == (address, port)
    assert (found["RANK"], found["WORLD_SIZE"]) == ("3", "4")
    found = rendezvous.environment(env | {"SLURM_JOB_NODELIST": hosts, "MASTER_PORT": "1"})
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == (address, "1")
    with pytest.raises(UserError, match="MASTER_ADDR, MASTER_PORT is not set"):
        rendezvous.environment(env)


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto", 0).type == "cpu"
    with pytest.raises(UserError, match="finds no GPU"):
        pick_device("cuda", 0)


def test_damaged_examples_are_noticed_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """egs.verify was read nowhere."""
    egs = write_examples(tmp_path / "egs")
    shard = egs / "train/examples.0001.npy"
    content = shard.read_bytes()
    shard.write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])  # of a feature
    config = write_config(tmp_path, RUNS, epochs=1)
    command = ["train", "--config", str(config), "--run-id", "single", "--out", str(tmp_path / "o")]
    command += ["--egs", str(egs / "train"), "--dev-egs", str(egs / "dev")]
    assert main(command) == 2
    assert "examples.0001.npy: damaged shard" in capsys.readouterr().err
    config.write_text(config.read_text() + "egs: {verify: false}\n")
    assert main(command) == 0


def test_wrong_number_of_processes(egs: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, RUNS)
    with pytest.raises(UserError, match="the run has 4 learners, but 1 processes were started"):
        assemble(load(config), "ssgd-4", egs=egs / "train", dev_egs=egs / "dev", out=tmp_path)


@pytest.mark.parametrize("policy", ["stop", "skip"])
@pytest.mark.parametrize("run_id", ["single", "ssgd-4", "adpsgd-4", "hadpsgd-2x2"])
def test_gradient_that_is_not_finite(run_id: str, policy: str, egs: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, RUNS, not_finite=policy)
    count = learners(run_id)
    started = launch(count, rank_with_nan, config, run_id, egs, tmp_path / "out", count - 1)
    outcomes = collect(started)
    if policy == "stop":
        wanted = f"gradient of learner {count - 1} is not finite at step 4"
        assert any(wanted in error for error in failures(outcomes)), outcomes
        assert not any("hung" in error for error in failures(outcomes)), outcomes
    else:
        assert not failures(outcomes)
        skipped = [o.value for o in outcomes.values()]
        assert skipped[count - 1] == 1
        assert sum(skipped) == {"ssgd-4": 4, "hadpsgd-2x2": 2}.get(run_id, 1)


def rank_with_nan(rank: int, config: Path, run_id: str, egs: Path, out: Path, sick: int) -> int:
    """Learner `sick` has a NaN in its gradient number 4; the steps it skipped."""
    job = assemble(load(config), run_id, egs=egs / "train", dev_egs=egs / "dev", out=out)
    parameter = next(iter(job.model.parameters()))

    def spoil(gradient: torch.Tensor) -> torch.Tensor:
        return gradient * torch.nan if (rank, job.engine.steps) == (sick, 4) else gradient

    parameter.register_hook(spoil)
    train(job)
    own = out / ("metrics.jsonl" if rank == 0 else f"metrics.rank{rank}.jsonl")
    rows = [json.loads(line) for line in own.read_text().splitlines()]
    return sum(row.get("skipped", 0) for row in rows)


def test_the_command_says_what_to_do_about_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise NotFiniteError("gradient of learner 3 is not finite at step 4")

    monkeypatch.setattr(command, "train", fail)
    engine = SimpleNamespace(steps=4)
    job = SimpleNamespace(
        run=SimpleNamespace(id="a-run", simulated=False),
        out=tmp_path,
        identity="0",
        engine=engine,
    )
    with pytest.raises(UserError, match=r"a-run: gradient of learner 3 .* at step 4. Lower the"):
        command._train(job)  # type: ignore[arg-type]
    assert divergence.noted(tmp_path, "0")["step"] == 4


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (math.nan, "the held-out loss is nan"),
        (math.inf, "the held-out loss is inf"),
        (9.0, "the held-out loss 9 is that of a guess among 1000 pdfs, 6.908"),
        (6.9, "the held-out loss 6.9 is that of a guess among 1000 pdfs, 6.908"),
        (6.8, ""),
        (0.1, ""),
    ],
)
def test_who_guesses_at_the_end_has_learned_nothing(loss: float, said: str) -> None:
    assert divergence.verdict(loss=loss, num_pdfs=1000) == said


def test_learning_rate_rule() -> None:
    settings = LearningRate(base=0.1, base_batch=256, warmup_epochs=10, anneal_after=10)
    assert rate(settings, batch=2560, epoch=0) == pytest.approx(0.1)
    assert rate(settings, batch=2560, epoch=5) == pytest.approx(0.55)
    assert rate(settings, batch=2560, epoch=9.999) == pytest.approx(1.0, rel=1e-3)
    assert rate(settings, batch=8192, epoch=9.9999) == pytest.approx(3.2, rel=1e-3)
    assert rate(settings, batch=2560, epoch=10) == pytest.approx(2**-0.5)
    assert rate(settings, batch=2560, epoch=10.99) == pytest.approx(2**-0.5)
    assert rate(settings, batch=2560, epoch=15.5) == pytest.approx(2**-3)
    assert rate(settings, batch=256, epoch=3) == pytest.approx(0.1)
    assert rate(settings, batch=64, epoch=0) == pytest.approx(0.025)


def test_run_sees_every_learner_once(egs: Path, tmp_path: Path) -> None:
    assert (
        run(4, rank_of_run, write_config(tmp_path, RUNS), "ssgd-4", egs, tmp_path / "o") == [0] * 4
    )
