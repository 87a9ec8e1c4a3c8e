"""Networks whose weights lie in another order than that of their shapes, as images want them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch._dynamo  # optimizers would import it in every process, for seconds
from processes import run
from torch import nn
from torch.testing import assert_close

from hadpsgd.decentralized import decentralize
from hadpsgd.decentralized.core.buffers import flatten
from hadpsgd.errors import UserError

LAST = torch.channels_last


def net(memory_format: torch.memory_format = LAST) -> nn.Module:
    torch.manual_seed(1)
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, (1, 3), bias=False)
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(2 * 4 * 2, 1))
    return model.to(memory_format=memory_format)  # type: ignore[call-overload,no-any-return]


def images(step: int, memory_format: torch.memory_format = LAST) -> torch.Tensor:
    drawn = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(step))
    return drawn.to(memory_format=memory_format)


def lies(model: nn.Module) -> list[bool]:
    """Whether weights, and gradients where there are any, of convolutions lie as channels_last."""
    weights = [p for p in model.parameters() if p.dim() == 4]
    there = [*weights, *(p.grad for p in weights if p.grad is not None)]
    return [each.is_contiguous(memory_format=LAST) for each in there]


def trained(_: int, strategy: str, memory_format: torch.memory_format) -> dict[str, Any]:
    model = net(memory_format)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    trainer = decentralize(model, optimizer, strategy=strategy, seconds=60)
    for step in range(5):
        model(images(step, memory_format)).square().mean().backward()
        trainer.step()
    trainer.finish()
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    return {"weights": kept, "lies": lies(model)}


def test_views_lie_as_the_weights_did() -> None:
    """Values as before, without a gap; the order decides whose checkpoints fit."""
    model, plain = net(), net()
    flat = flatten(model)
    assert all(lies(model)) and len(lies(model)) == 4
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, theirs) and ours.stride() == theirs.stride()
    for each in (model, plain):
        each(images(0)).square().mean().backward()
    flat.collect()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert ours.grad is not None and theirs.grad is not None
        assert torch.equal(ours.grad, theirs.grad)
    flat.point_to(flat.weights.clone())
    assert all(lies(model))
    assert flat.layout != flatten(net(torch.contiguous_format)).layout


def test_a_part_of_a_larger_tensor_is_moved_in_the_order_of_its_shape() -> None:
    """With gaps it would reach into its neighbours."""
    model = nn.Linear(3, 4)
    with torch.no_grad():
        model.weight.data = torch.arange(24.0).view(4, 6)[:, ::2]
    values = model.weight.detach().clone()
    flatten(model)
    assert torch.equal(model.weight, values) and model.weight.is_contiguous()


@pytest.mark.parametrize("half", [False, True], ids=["", "a bfloat16 layer"])
def test_the_weights_are_torchs(half: bool) -> None:
    """One learner, torch's optimiser: the same bits as without us."""
    model, plain = net(), net()
    if half:
        for each in (model, plain):
            each[3].to(torch.bfloat16)  # type: ignore[index]
    ours, theirs = (
        torch.optim.SGD(each.parameters(), lr=0.125, momentum=0.5) for each in (model, plain)
    )
    trainer = decentralize(model, ours)
    for step in range(4):
        for each in (model, plain):
            with torch.autocast("cpu", enabled=half):
                each(images(step)).float().square().mean().backward()
        trainer.step()
        theirs.step()
        theirs.zero_grad()
    trainer.finish()
    assert all(lies(model))
    for mine, its in zip(model.parameters(), plain.parameters(), strict=True):
        # sums of a bfloat16 layer are kept in single precision
        assert_close(mine, its, rtol=0.02 if half else 0, atol=1e-3 if half else 0)


@pytest.mark.parametrize("strategy", ["ssgd", "dpsgd"])
def test_learners_end_as_with_the_order_of_shapes(strategy: str) -> None:
    """All see the same images, so that mixing in step changes nothing."""
    last, plain = (
        run(2, trained, strategy, each, seconds=180) for each in (LAST, torch.contiguous_format)
    )
    for found in last:
        assert all(found["lies"])
        for name, value in plain[0]["weights"].items():
            assert_close(found["weights"][name], value, rtol=1e-4, atol=1e-5)


def test_asynchronous_learners_keep_it() -> None:
    first, second = run(2, trained, "adpsgd", LAST, seconds=180)
    assert all(first["lies"]) and all(second["lies"])
    for name, value in first["weights"].items():  # averaged at the end
        assert torch.equal(value, second["weights"][name]), name


def orders_differ(rank: int) -> str:
    try:
        trained(rank, "dpsgd", LAST if rank else torch.contiguous_format)
    except UserError as error:
        return str(error)
    except RuntimeError:  # the other one has been refused, and is gone
        pass
    return ""


def test_learners_with_different_orders_are_refused() -> None:
    assert any(
        "its weights in another order than others" in told
        for told in run(2, orders_differ, seconds=180)
    )
