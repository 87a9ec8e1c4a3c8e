"""`decentralize` in scripts of other people: options, gradients and weights of their own making."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # optimizers would import it in every process, for seconds
import torch.distributed as dist
from processes import run
from torch import nn

from hadpsgd.decentralized import decentralize
from hadpsgd.errors import UserError


def net() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def trainer_of(model: nn.Module, **options: Any) -> Any:
    return decentralize(model, torch.optim.SGD(model.parameters(), lr=0.1), **options)


def loss_of(model: nn.Module, step: int) -> torch.Tensor:
    return model(torch.full((2, 3), 1.0 + step)).square().mean()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"clip_norm": -1.0}, "clip_norm is a number from 0 (no limit), not -1.0"),
        ({"clip_norm": float("nan")}, "clip_norm is a number from 0"),
        ({"strategy": "local", "average_every": 0}, "average_every is a whole number from 1"),
        ({"strategy": "local", "average_every": 1.5}, "average_every is a whole number from 1"),
        ({"pace": 0}, "pace is a whole number from 1, not 0"),
        ({"pace": float("inf")}, "pace is a whole number from 1, not inf"),
        ({"max_staleness": 0}, "max_staleness is a whole number from 1"),
        ({"backwards": 0}, "backwards is a whole number from 1"),
        ({"strategy": "diloco", "outer_rate": -1.0}, "outer_rate is a number above 0"),
        ({"strategy": "noloco", "outer_momentum": 1.0}, "outer_momentum is a number from 0 to"),
        ({"strategy": "dpsgd", "pace": 3}, "strategy dpsgd has no pace. Leave it out"),
        (
            {"average_every": 4},
            "strategy adpsgd has no average_every. It takes max_stale",
        ),
        ({"strategy": "sgp", "average_every": 4}, "strategy sgp has no average_every"),
        ({"strategy": "adpsgd", "among": "dpsgd"}, "strategy adpsgd has no among"),
        ({"strategy": "hadpsgd"}, "hadpsgd without super_learner"),
        (
            {"strategy": "hadpsgd", "super_learner": 2, "among": "dpsgd", "pace": 2},
            "strategy hadpsgd among dpsgd has no pace. It takes among, super_learner",
        ),
    ],
)
def test_options_that_would_do_harm_or_nothing(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError) as refusal:
        trainer_of(net(), **options)
    assert told in str(refusal.value)


@pytest.mark.parametrize("way", ["another tensor", "in place"])
def test_gradients_that_no_backward_made(way: str) -> None:
    """As of meta-learning: torch.autograd.grad, then a gradient by hand; torch is the measure."""
    model, plain = net(), net()
    trainer = trainer_of(model)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for step in range(3):
        for each in (model, plain):
            parameters = list(each.parameters())
            made = torch.autograd.grad(loss_of(each, step), parameters)
            for p, gradient in zip(parameters, made, strict=True):
                if way == "in place" and p.grad is not None:
                    p.grad.copy_(gradient)
                else:
                    p.grad = gradient.clone()
        trainer.step()
        optimizer.step()
    trainer.finish()
    pairs = zip(model.parameters(), plain.parameters(), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
    assert not torch.equal(model[0].weight, net()[0].weight)  # type: ignore[index]


def loads_late(_: int, strategy: str, when: int) -> str:
    """What is told to a script that changes weights after that many steps."""
    model = net()
    trainer = trainer_of(model, strategy=strategy, seconds=60)
    try:
        for step in range(when + 1):
            if step == when:
                model.load_state_dict({n: v + 7.0 for n, v in model.state_dict().items()})
            loss_of(model, step).backward()
            trainer.step()
        trainer.finish()
    except UserError as error:
        return str(error)
    return f"{float(model.state_dict()['2.bias'].detach()):.1f}"


@pytest.mark.parametrize("strategy", ["d1d", "sgp", "diloco", "noloco"])
@pytest.mark.parametrize("when", [0, 2])
def test_weights_that_would_be_lost(strategy: str, when: int) -> None:
    told = run(2, loads_late, strategy, when, seconds=180)
    assert all("weights were changed beside the trainer" in line for line in told)
    assert all(strategy in line for line in told)


def test_weights_loaded_before_the_first_step_are_those_that_learn() -> None:
    model = net()
    trainer = trainer_of(model)
    model.load_state_dict({name: torch.ones_like(v) for name, v in model.state_dict().items()})
    loss_of(model, 0).backward()
    before = model[0].weight.detach().clone()  # type: ignore[index]
    assert torch.equal(before, torch.ones_like(before))
    trainer.step()
    trainer.finish()
    assert 0 < float((model[0].weight.detach() - before).abs().max()) < 1  # type: ignore[index]


def test_the_optimizer_is_free_again_after_the_end() -> None:
    """For fine-tuning of the mean."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = decentralize(model, optimizer)
    loss_of(model, 0).backward()
    trainer.step()
    trainer.finish()
    before = model[0].weight.detach().clone()  # type: ignore[index]
    optimizer.zero_grad()
    loss_of(model, 1).backward()
    optimizer.step()
    assert not torch.equal(before, model[0].weight)  # type: ignore[index]


def measures(rank: int, strategy: str) -> list[float]:
    trainer = trainer_of(model := net(), strategy=strategy, seconds=60)
    found = []
    for step in range(3):
        loss_of(model, step).backward()
        trainer.step()
        found.append(trainer.mean(10.0 * rank + step))
    trainer.finish()
    return found


@pytest.mark.parametrize("strategy", ["adpsgd", "ssgd"])
def test_means_of_measurements(strategy: str) -> None:
    assert run(2, measures, strategy, seconds=180) == [[5.0, 6.0, 7.0]] * 2


def saves_alone(rank: int) -> str:
    trainer = trainer_of(model := net(), strategy="dpsgd", seconds=3)
    try:
        loss_of(model, 0).backward()
        trainer.step()
        if rank == 0:  # the habit of DistributedDataParallel
            trainer.state_dict()
        trainer.finish()
    except (UserError, ConnectionError, RuntimeError) as error:
        return str(error)
    return "nothing"


def test_a_checkpoint_that_one_rank_makes_alone_is_refused() -> None:
    told, _ = run(2, saves_alone, seconds=180)
    assert "rank 1" in told and "nothing" not in told


def with_a_group(rank: int) -> str:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        trainer_of(net(), strategy="adpsgd", seconds=60)
    except UserError as error:
        return f"{error} {dist.is_initialized()}"
    return f"nothing {rank}"


def test_a_process_group_of_the_scripts_own_is_refused_and_left_alone() -> None:
    told = run(2, with_a_group, seconds=180)
    assert all("has a default process group" in line and "trainer.mean()" in line for line in told)
    assert all(line.endswith("True") for line in told)


@pytest.mark.parametrize("end", ["", "raise SystemError('mine')", "trainer.finish()"])
def test_a_script_that_forgets_the_end_is_told(end: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    lines = [
        "import torch",
        "from hadpsgd.decentralized import decentralize",
        "model = torch.nn.Linear(1, 1)",
        "trainer = decentralize(model, torch.optim.SGD(model.parameters(), lr=0.1))",
        "model(torch.ones(1, 1)).sum().backward()",
        "trainer.step()",
    ]
    script.write_text("\n".join([*lines, end]) + "\n")
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert ("without trainer.finish()" in ran.stderr) == (end == "")
    assert (ran.returncode == 0) == ("raise" not in end)
