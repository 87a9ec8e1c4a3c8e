"""Weights that lie in another order, as an LSTM's do on a GPU: refused, never mixed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist
from torch import nn

from hadpsgd.decentralized import assembly
from hadpsgd.decentralized.core.buffers import Flat, flatten
from hadpsgd.decentralized.strategies.checkpointed import check_layout
from hadpsgd.errors import UserError


def here() -> Flat:
    """Of a small network."""
    return flatten(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))


def elsewhere(flat: Flat) -> Flat:
    """The same parameters, two of them in other places."""
    first, second, *rest = flat.slots
    slots = [replace(second, start=first.start), replace(first, start=second.start), *rest]
    return replace(flat, slots=slots)


def test_a_checkpoint_of_another_order_is_refused() -> None:
    flat = here()
    learner: Any = SimpleNamespace(flat=flat)
    check_layout({"layout": flat.layout}, learner)
    check_layout({}, learner)  # of a former version
    with pytest.raises(UserError, match="weights in another order"):
        check_layout({"layout": elsewhere(flat).layout}, learner)


def test_a_rank_with_another_order_is_refused() -> None:
    store, flat = dist.HashStore(), here()

    def meeting(rank: int) -> Any:
        return SimpleNamespace(
            store=store, place=SimpleNamespace(rank=rank), prefixed=lambda _: store
        )

    for rank in (1, 0):
        assembly._check_alike(flat, meeting(rank))
    with pytest.raises(UserError, match="rank 2 has its weights in another order"):
        assembly._check_alike(elsewhere(flat), meeting(2))
