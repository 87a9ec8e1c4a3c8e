"""Early stopping: when training ends, what is final then; killed, resumed and replayed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import collect
from test_averaging import ended, replayed, summary, two_processes
from test_virtual import Died, die, rows, run_of_kind, stop_at, train
from training_data import launch_of
from training_runs import weights, write_examples

from hadpsgd.config import run_fingerprint
from hadpsgd.training.patience import Patience

SPOILT: dict[str, Any] = {
    "epochs": 12,
    "momentum": 0.9,
    "learning_rate": {"base": 1.5, "base_batch": 40, "anneal_after": 20},
}
"""Steps so large that the held-out loss soon goes up and down."""


@pytest.fixture(scope="module")
def egs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Examples to train on and held-out ones."""
    return write_examples(tmp_path_factory.mktemp("egs"))


def losses(folder: Path) -> dict[int, float]:
    """Epoch -> held-out loss."""
    return {int(r["epoch"]): r["heldout_loss"] for r in rows(folder) if "heldout_loss" in r}


@pytest.mark.parametrize(
    ("patience", "heard", "best", "enough"),
    [
        (2, [3.0, 2.0, 2.5, 2.1], 2, True),
        (2, [3.0, 2.0, 2.0, 1.9], 4, False),
        (2, [3.0, 2.0, 2.0, 2.0, 1.0], 2, True),  # what comes later changes nothing
        (1, [math.nan], 0, True),
        (1, [3.0, math.nan], 1, True),
        (0, [1.0, 2.0, 3.0, 4.0], 1, False),
    ],
)
def test_when_it_is_enough(patience: int, heard: list[float], best: int, enough: bool) -> None:
    told = [{"epoch": float(n), "heldout_loss": loss} for n, loss in enumerate(heard, 1)]
    found = Patience(patience).hear([{"loss": 0.0}, *told])
    assert (found.best, found.enough) == (best, enough)


def test_the_final_weights_are_those_of_the_best_epoch(
    egs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which a training that ends there has, too."""
    run = {**run_of_kind("ssgd"), "learners": 2}
    ours = train(tmp_path / "early", egs, run, **SPOILT, early_stop=1)
    found, heard = summary(tmp_path / "early"), losses(tmp_path / "early")
    best = int(found["best_epoch"])
    assert best < max(heard) == best + 1 and heard[best] == min(heard.values())
    assert found["steps"] < 10 * (best + 2) < 120
    assert found["heldout_loss"] == pytest.approx(heard[best], rel=1e-6)
    said = capsys.readouterr().err
    assert f"no better held-out loss in the 1 epochs after epoch {best}: training ends" in said
    assert torch.equal(train(tmp_path / "best", egs, run, **{**SPOILT, "epochs": best}), ours)
    assert torch.equal(replayed(tmp_path / "early", egs, "ssgd"), ours)


def test_it_outlives_a_death_and_is_replayed(
    egs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the mean of the epochs up to the best one, asynchronous."""
    run = {**run_of_kind("adpsgd"), "learners": 2}
    settings = {**SPOILT, "early_stop": 2, "average_last": 2}
    whole = train(tmp_path / "whole", egs, run, **settings)
    found = summary(tmp_path / "whole")
    assert found["steps"] < 120
    with monkeypatch.context() as context:
        stop_at(context, 0, 20, die)
        with pytest.raises(Died):
            train(tmp_path / "broken", egs, run, **settings)
    assert torch.equal(train(tmp_path / "broken", egs, run, **settings), whole)
    assert summary(tmp_path / "broken")["best_epoch"] == found["best_epoch"]
    assert torch.equal(replayed(tmp_path / "broken", egs, "adpsgd"), whole)


@pytest.mark.parametrize("strategy", ["ssgd", "adpsgd"])
def test_two_processes_end_together(strategy: str, egs: Path, tmp_path: Path) -> None:
    """All of them know that this is the end, also when they are started again."""
    settings = {**SPOILT, "epochs": 60, "clip_norm": 5.0, "early_stop": 1}
    codes = [o.value for o in collect(two_processes(tmp_path, egs, strategy, **settings)).values()]
    assert codes == [0, 0]
    final, found = weights(tmp_path / "out"), summary(tmp_path)
    assert found["steps"] < 600 and found["best_epoch"] >= 1
    assert torch.equal(replayed(tmp_path, egs, f"{strategy}-2"), final)
    (tmp_path / "out/final.pt").unlink()
    ended(two_processes(tmp_path, egs, strategy, **settings))
    assert torch.equal(weights(tmp_path / "out"), final)
    assert summary(tmp_path)["steps"] == found["steps"]


def test_off_it_makes_nothing_again(tmp_path: Path) -> None:
    plain, off, on = (
        launch_of(tmp_path / name, {"strategy": "single"}, **given)
        for name, given in (("a", {}), ("b", {"early_stop": 0}), ("c", {"early_stop": 2}))
    )
    prints = [run_fingerprint(launch.config, launch.run_id) for launch in (plain, off, on)]
    assert prints[0] == prints[1] != prints[2]
