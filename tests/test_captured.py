"""Gradients as CUDA graphs: when one is made, and what becomes of those that cannot be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hadpsgd.training import captured
from hadpsgd.training.captured import KEPT, WARM, Captured


class Graph:
    """Stands in for a graph, on a processor."""

    made = 0

    def __init__(self, take: Any, x: Tensor, *_: object) -> None:
        Graph.made += 1
        self.take = take
        self.shape = x.shape

    def __call__(self, x: Tensor, targets: Tensor) -> Tensor:
        assert x.shape == self.shape
        result: Tensor = self.take(x, targets)
        return result


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> nn.Linear:
    """A module with gradients that are there already."""
    Graph.made = 0
    monkeypatch.setattr(captured, "_Graph", Graph)
    made = nn.Linear(2, 1)
    for parameter in made.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return made


def taking(module: nn.Linear) -> Captured:
    """Of a small loss."""

    def take(x: Tensor, targets: Tensor) -> Tensor:
        loss: Tensor = ((module(x) - targets) ** 2).mean()
        loss.backward()
        return loss.detach()

    return Captured(take, module)


def minibatch(size: int) -> tuple[Tensor, Tensor]:
    """Of so many examples."""
    draws = torch.Generator().manual_seed(size)
    return torch.randn(size, 2, generator=draws), torch.randn(size, 1, generator=draws)


def test_each_shape_has_one_graph_after_the_first_gradients(module: nn.Linear) -> None:
    gradient = taking(module)
    for _ in range(WARM + 3):
        for size in (3, 4):
            gradient(*minibatch(size))
    assert Graph.made == 2


def test_no_more_than_some_are_kept(module: nn.Linear) -> None:
    gradient = taking(module)
    for size in range(1, KEPT + 3):
        for _ in range(WARM + 2):
            gradient(*minibatch(size))
    assert Graph.made == KEPT


@pytest.mark.parametrize("moved", ["weights", "gradient"])
def test_what_has_moved_needs_a_graph_of_its_own(moved: str, module: nn.Linear) -> None:
    gradient, x = taking(module), minibatch(3)
    for _ in range(WARM + 1):
        gradient(*x)
    assert Graph.made == 1
    kept = module.weight.data, module.weight.grad
    if moved == "weights":
        module.weight.data = kept[0].clone()
    else:
        module.weight.grad = torch.zeros_like(module.weight)
    gradient(*x)
    assert Graph.made == 1
    for _ in range(WARM):
        gradient(*x)
    assert Graph.made == 2


def test_without_a_gradient_to_add_to_none_is_made(module: nn.Linear) -> None:
    gradient = taking(module)
    for _ in range(WARM + 3):
        module.weight.grad = None
        gradient(*minibatch(3))
    assert Graph.made == 0


def test_what_cannot_be_captured_goes_on_as_usual(
    module: nn.Linear, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unable(*_: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nmore of it")

    monkeypatch.setattr(captured, "_Graph", unable)
    gradient, x = taking(module), minibatch(3)
    losses = [float(gradient(*x)) for _ in range(WARM + 4)]
    assert len(set(losses)) == 1
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "no CUDA graph, kernels are begun one by one: operation not permitted when stream is "
        "capturing"
    ]
