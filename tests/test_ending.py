"""How a library's training ends where not all learners come to its end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # optimizers would import it in every process, for seconds
import torch.distributed as dist
from processes import collect, launch
from torch import nn

from hadpsgd.decentralized import decentralize
from hadpsgd.errors import UserError

SCRIPT = """
import sys
import time

import torch

from hadpsgd.decentralized import decentralize

torch.manual_seed(1)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
trainer = decentralize(model, optimizer, strategy="adpsgd", seconds=20)
for step in range(20):
    if trainer.rank == 1 and step == 5:
        sys.exit(0)
    model(torch.ones(1, 1)).sum().backward()
    trainer.step()
    time.sleep(0.02)
time.sleep(1)
trainer.finish()
print("finished")
"""


def trainer_of(**options: Any) -> tuple[nn.Module, Any]:
    torch.manual_seed(1)
    model = nn.Linear(1, 1)
    return model, decentralize(model, torch.optim.SGD(model.parameters(), lr=0.01), **options)


def step(model: nn.Module, trainer: Any) -> None:
    model(torch.ones(1, 1)).sum().backward()
    trainer.step()


def late(rank: int) -> None:
    """Learner 1 has not come to its end when the other has waited for it."""
    model, trainer = trainer_of(strategy="diloco", average_every=100, seconds=2)
    step(model, trainer)
    if rank == 1:
        time.sleep(8)
        os._exit(0)
    trainer.finish()


def test_who_does_not_come_to_the_end_is_named() -> None:
    outcomes = collect(launch(2, late), seconds=60)
    assert "UserError: " in outcomes[0].error
    assert "rank 1 did not come to finish() within 2 s" in outcomes[0].error


def test_a_store_that_is_gone_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher was killed, or rank 0 where it has the store."""

    def broken(*_: object, **__: object) -> None:
        raise dist.DistNetworkError("Broken pipe")

    model, trainer = trainer_of()
    step(model, trainer)
    monkeypatch.setattr(trainer.engine, "step", broken)
    with pytest.raises(UserError, match="the process that has the store of all learners is gone"):
        step(model, trainer)


def test_a_script_that_ends_in_the_middle_of_training(tmp_path: Path) -> None:
    """Its process ends as if nothing were wrong, so the other one says that it is gone."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    ran = subprocess.run(
        [sys.executable, "-m", "hadpsgd", "launch", "--learners", "2", str(script)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "finished\n"
    told = "UserWarning: learner 1 left before finish(): the mean is that of the others"
    assert ran.stderr.count(told) == 1 and f"{script}:20" in ran.stderr
    assert "terminate called" not in ran.stderr and "Traceback" not in ran.stderr


def test_nothing_comes_after_the_end() -> None:
    model, trainer = trainer_of()
    step(model, trainer)
    trainer.finish()
    trainer.finish()  # a second time it does nothing
    for call in (trainer.state_dict, lambda: step(model, trainer)):
        with pytest.raises(UserError, match="this trainer has finished"):
            call()


def afterwards(rank: int) -> None:  # noqa: ARG001
    model, trainer = trainer_of(strategy="adpsgd", seconds=30)
    batches = trainer.share([torch.ones(1)] * 4)
    with trainer:
        for _ in batches:
            step(model, trainer)
    next(iter(batches))


def test_a_pool_has_nothing_after_the_end_and_says_so() -> None:
    for outcome in collect(launch(2, afterwards), seconds=60).values():
        assert "UserError: this trainer has finished" in outcome.error
