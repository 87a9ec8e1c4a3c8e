"""`trainer.stopped`: a signal to one learner stops all, at a moment that can be saved."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo  # optimizers would import it in every process, for seconds
from processes import run
from torch import nn

from hadpsgd.decentralized import decentralize
from hadpsgd.errors import UserError

LEARNERS, BATCHES, EPOCHS = 3, 30, 3


def learner(
    rank: int, options: dict[str, Any], kill: int, states: list[dict[str, Any]] | None
) -> dict[str, Any]:
    """One process; rank 1 is sent signal `kill` in the first epoch, if it is not 0."""
    torch.manual_seed(1)
    x = torch.randn(BATCHES, 4, 3)
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    trainer = decentralize(model, optimizer, **options)
    batches = trainer.share(list(enumerate(x)))
    if states is not None:
        trainer.load_state_dict(states[rank])
    seen, state = [], None
    with trainer:
        for epoch in range(batches.epoch, EPOCHS):
            for number, batch in batches:
                seen.append((epoch, number))
                time.sleep(0.01)
                nn.functional.mse_loss(model(batch), batch[:, :1]).backward()
                trainer.step()
                if trainer.stopped:
                    break
                if kill and rank == 1 and trainer.steps == 2:
                    os.kill(os.getpid(), kill)
            if trainer.stopped:
                state = trainer.state_dict()
                break
    return {"seen": seen, "state": state, "steps": trainer.steps, "model": vector(model)}


def vector(model: nn.Module) -> np.ndarray:
    """All of a model's state."""
    return torch.cat([v.double().flatten() for v in model.state_dict().values()]).numpy()


@pytest.mark.parametrize("strategy", ["dpsgd", "ssgd", "local"])
def test_a_stopped_run_goes_on_with_the_same_bits(strategy: str) -> None:
    """As if there had been no signal."""
    options = {"strategy": strategy} | ({"average_every": 3} if strategy == "local" else {})
    whole = run(LEARNERS, learner, options, 0, None, seconds=120)
    first = run(LEARNERS, learner, options, signal.SIGUSR1, None, seconds=120)
    assert len({result["steps"] for result in first}) == 1
    assert 2 < first[0]["steps"] < EPOCHS * BATCHES // LEARNERS
    states = [result["state"] for result in first]
    second = run(LEARNERS, learner, options, 0, states, seconds=120)
    for ours, begun, theirs in zip(whole, first, second, strict=True):
        assert begun["seen"] + theirs["seen"] == ours["seen"]
        assert (theirs["model"] == ours["model"]).all()


@pytest.mark.parametrize(
    "options", [{"strategy": "adpsgd"}, {"strategy": "adpsgd", "schedule": "random-partner"}]
)
def test_asynchronous_learners_stop_and_go_on(options: dict[str, Any]) -> None:
    """Every batch is used once an epoch."""
    first = run(LEARNERS, learner, options, signal.SIGTERM, None, seconds=120)
    states = [result["state"] for result in first]
    assert all(states)
    second = run(LEARNERS, learner, options, 0, states, seconds=120)
    used = Counter(piece for result in (*first, *second) for piece in result["seen"])
    assert used == Counter((epoch, n) for epoch in range(EPOCHS) for n in range(BATCHES))
    assert sum(len(result["seen"]) for result in second) > 0


def test_who_goes_on_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A learner alone; signals end the process again when training is over."""
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("SLURM_PROCID", raising=False)
    before = signal.getsignal(signal.SIGTERM)
    model = nn.Linear(1, 1)
    trainer = decentralize(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def step() -> None:
        model(torch.ones(1, 1)).sum().backward()
        trainer.step()

    step()
    assert not trainer.stopped
    os.kill(os.getpid(), signal.SIGTERM)
    step()
    assert trainer.stopped
    with pytest.raises(UserError, match="Leave the loop when"):
        step()
    trainer.finish()
    assert not trainer.stopped and signal.getsignal(signal.SIGTERM) is before
