"""The mean of the last epochs' weights: what it is of, when it is chosen, killed and replayed."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import Process, collect, launch
from test_virtual import Died, arguments, die, run_of_kind, stop_at, train
from training_data import launch_of, write_config
from training_runs import rank_of_run, weights, write_examples

from hadpsgd.cli import main
from hadpsgd.config import run_fingerprint
from hadpsgd.training.saved import newest

ROUGH: dict[str, Any] = {
    "epochs": 5,
    "momentum": 0.9,
    "learning_rate": {"base": 1.0, "base_batch": 40, "anneal_after": 20},
}
"""Steps so large that the end of an epoch lies beside the minimum, and a mean nearer to it."""
GENTLE: dict[str, Any] = {"epochs": 3, "learning_rate": {"base": 0.05, "base_batch": 40}}
"""Steps so small that the last epoch is the best by far."""


@pytest.fixture(scope="module")
def egs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Examples to train on and held-out ones."""
    return write_examples(tmp_path_factory.mktemp("egs"))


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "out/summary.json").read_text())
    return found


def replayed(folder: Path, egs: Path, run_id: str) -> torch.Tensor:
    """The final weights that follow from the record."""
    names = ["--config", str(folder / "config.yaml"), "--run-id", run_id]
    out = folder / "replayed"
    assert main(["replay", *names, "--egs", str(egs / "train"), "--out", str(out)]) == 0
    return weights(out)


def test_it_is_the_mean_of_trainings_that_end_an_epoch_earlier(
    egs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of_kind("single")
    ends = [
        train(tmp_path / str(epochs), egs, run, **{**ROUGH, "epochs": epochs})
        for epochs in (3, 4, 5)
    ]
    ours = train(tmp_path / "mean", egs, run, **ROUGH, average_last=3)
    expected = torch.stack(ends).double().mean(0).float()
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6)
    found, last = summary(tmp_path / "mean"), summary(tmp_path / "5")
    assert found["averaged_epochs"] == 3
    assert found["heldout_loss_of_last"] == last["heldout_loss"]
    assert found["heldout_loss"] == found["heldout_loss_of_mean"] < last["heldout_loss"]
    said = (
        f"{found['heldout_loss']:.4f} of the mean of epochs 3 to 5, {last['heldout_loss']:.4f} of"
    )
    assert said in capsys.readouterr().err


def test_the_last_epoch_stays_where_the_mean_is_worse(
    egs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of_kind("hadpsgd")
    last = train(tmp_path / "last", egs, run, **GENTLE)
    assert torch.equal(train(tmp_path / "mean", egs, run, **GENTLE, average_last=3), last)
    found = summary(tmp_path / "mean")
    assert found["averaged_epochs"] == 1
    assert found["heldout_loss"] == summary(tmp_path / "last")["heldout_loss"]
    assert found["heldout_loss_of_mean"] > found["heldout_loss"]
    assert "the last one is final" in capsys.readouterr().err
    assert torch.equal(replayed(tmp_path / "mean", egs, "hadpsgd"), last)


@pytest.mark.parametrize(
    ("kind", "node", "step"),
    [("sgp", 0, 38), ("adpsgd", 0, 52), ("hadpsgd", 1, 52)],  # asynchronous: of the fast one of two
)
def test_it_outlives_a_death_and_is_replayed(
    kind: str, node: int, step: int, egs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learners = {"hadpsgd": 4}.get(kind, 2)  # or two super-learners
    run = {**run_of_kind(kind), "learners": learners}
    settings = {**ROUGH, "average_last": 3}
    whole = train(tmp_path / "whole", egs, run, **settings)
    assert summary(tmp_path / "whole")["averaged_epochs"] == 3
    with monkeypatch.context() as context:
        stop_at(context, node, step, die)
        with pytest.raises(Died):
            train(tmp_path / "broken", egs, run, **settings)
    checkpoint = newest(next((tmp_path / "broken/results/checkpoints/tiny").iterdir()))
    assert any(3 in epochs for epochs in checkpoint.epochs().values())
    assert torch.equal(train(tmp_path / "broken", egs, run, **settings), whole)
    assert torch.equal(replayed(tmp_path / "broken", egs, kind), whole)


def two_processes(
    folder: Path, egs: Path, strategy: str, *, pause: float = 0.0, **training: Any
) -> dict[int, Process]:
    """Begin `hadpsgd train` of two learners."""
    config = write_config(folder, [{"strategy": strategy, "learners": 2}], **training)
    return launch(2, rank_of_run, config, f"{strategy}-2", egs, folder / "out", pause)


def ended(processes: dict[int, Process]) -> None:
    """Wait for the good end of a run."""
    assert not [o.error for o in collect(processes, 120).values() if o.error]


@pytest.mark.parametrize("strategy", ["ssgd", "adpsgd"])
def test_two_processes_that_are_killed_end_as_their_record_says(
    strategy: str, egs: Path, tmp_path: Path
) -> None:
    """Synchronous ones also with the bits of those that nobody killed."""
    settings = {**ROUGH, "epochs": 4, "average_last": 3, "checkpoint_minutes": 0.001}
    folder = tmp_path / "broken"
    started = two_processes(folder, egs, strategy, pause=0.05, **settings)
    deadline = time.monotonic() + 60
    kept = f"results/checkpoints/tiny/{strategy}-2-*/epochs/0002-node-0-*.pt"
    while not list(folder.glob(kept)) and time.monotonic() < deadline:
        time.sleep(0.01)
    for process in started.values():
        os.kill(process.pid, signal.SIGKILL)
    assert all(o.code == -signal.SIGKILL for o in collect(started).values())
    ended(two_processes(folder, egs, strategy, **settings))
    final = weights(folder / "out")
    found = summary(folder)
    assert found["heldout_loss"] == min(
        found["heldout_loss_of_last"], found["heldout_loss_of_mean"]
    )
    assert torch.equal(replayed(folder, egs, f"{strategy}-2"), final)
    if strategy == "ssgd":
        ended(two_processes(tmp_path / "whole", egs, strategy, **settings))
        assert torch.equal(weights(tmp_path / "whole/out"), final)


def test_weights_that_are_gone_or_damaged_end_in_a_line(
    egs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of_kind("single")
    train(tmp_path, egs, run, **GENTLE, average_last=2)
    (tmp_path / "out/final.pt").unlink()
    file = next(tmp_path.rglob("epochs/0002-*.pt"))
    assert re.fullmatch(r"0002-node-0-at-\d+-[0-9a-f]{16}\.pt", file.name)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert main(arguments(tmp_path, egs, run, **GENTLE, average_last=2)) == 2
    assert f"{file}: the weights of an epoch are damaged" in capsys.readouterr().err
    file.unlink()
    assert main(arguments(tmp_path, egs, run, **GENTLE, average_last=2)) == 2
    assert f"{file}: the weights of an epoch are gone" in capsys.readouterr().err


def test_off_it_keeps_nothing_and_makes_nothing_again(egs: Path, tmp_path: Path) -> None:
    train(tmp_path, egs, run_of_kind("single"), epochs=2)
    assert not list(tmp_path.rglob("epochs")) and "averaged_epochs" not in summary(tmp_path)
    plain, off, on = (
        launch_of(tmp_path / name, {"strategy": "single"}, **given)
        for name, given in (("a", {}), ("b", {"average_last": 1}), ("c", {"average_last": 2}))
    )
    prints = [run_fingerprint(launch.config, launch.run_id) for launch in (plain, off, on)]
    assert prints[0] == prints[1] != prints[2]
