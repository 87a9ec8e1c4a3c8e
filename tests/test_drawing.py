"""Batches of loaders of all kinds: alike on all ranks, each used once, in a resumed epoch too."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo  # optimizers would import it in every process, for seconds
from processes import collect, launch, run
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from hadpsgd.decentralized import decentralize
from hadpsgd.decentralized.drawing import drawn, sampler_of
from hadpsgd.decentralized.share import Share
from hadpsgd.errors import UserError

EXAMPLES, BATCH = 48, 4
DATA = TensorDataset(torch.arange(EXAMPLES))


class Shuffled:
    """A batch sampler of a user's own."""

    def __init__(self, source: str) -> None:
        self.source = source

    def __len__(self) -> int:
        return EXAMPLES // BATCH

    def __iter__(self) -> Iterator[list[int]]:
        order = list(range(EXAMPLES))
        if self.source == "python":
            random.shuffle(order)
        else:
            np.random.shuffle(order)
        for first in range(0, EXAMPLES, BATCH):
            yield order[first : first + BATCH]


def loader(kind: str, rank: int = 0) -> DataLoader[Any]:
    """As a user on this rank may make it."""
    torch.manual_seed(rank)
    random.seed(rank)
    np.random.seed(rank)
    match kind:
        case "torch":
            return DataLoader(DATA, batch_size=BATCH, shuffle=True)
        case "generator":
            generator = torch.Generator().manual_seed(rank)
            return DataLoader(DATA, batch_size=BATCH, shuffle=True, generator=generator)
    return DataLoader(DATA, batch_sampler=Shuffled(kind))


KINDS = ("torch", "generator", "python", "numpy")


@pytest.mark.parametrize("kind", KINDS)
def test_an_epochs_batches_depend_on_seed_and_epoch_alone(kind: str) -> None:
    first, other = (sampler_of(loader(kind, rank)) for rank in (0, 1))
    batches = drawn(first, seed=7, epoch=0)
    assert drawn(other, seed=7, epoch=0) == drawn(first, seed=7, epoch=0) == batches
    assert sorted(n for batch in batches.batches for n in batch) == list(range(EXAMPLES))
    others = drawn(first, seed=7, epoch=1), drawn(first, seed=9, epoch=0)
    assert batches.batches not in [other.batches for other in others]
    assert batches.name not in [other.name for other in others]


def test_a_scripts_own_numbers_go_on_as_if_nothing_was_drawn() -> None:
    def numbers() -> tuple[float, ...]:
        return float(torch.rand(1)), random.random(), float(np.random.rand())

    for kind in KINDS:
        sampler = sampler_of(loader(kind))
        before = numbers()
        loader(kind)  # seeds anew
        drawn(sampler, seed=7, epoch=0)
        assert numbers() == before
    generator = torch.Generator().manual_seed(3)
    given = DataLoader(DATA, batch_size=BATCH, shuffle=True, generator=generator)
    state = generator.get_state()
    drawn(sampler_of(given), seed=7, epoch=0)
    assert torch.equal(generator.get_state(), state)


@pytest.mark.parametrize("size", [BATCH, None])
def test_a_loader_that_is_divided_already(size: int | None) -> None:
    """As a script for DDP has it: of N learners, 1/N of the data would be used, again and again."""
    sampler: Any = DistributedSampler(DATA, num_replicas=2, rank=0)
    with pytest.raises(UserError, match="DistributedSampler gives each rank a part"):
        sampler_of(DataLoader(DATA, batch_size=size, sampler=sampler))


def worker(rank: int, strategy: str, kind: str, states: list[Any] | None) -> tuple[Any, list[int]]:
    """Two epochs; or the second one from its middle on, where the first call was."""
    given = loader(kind, rank)
    torch.manual_seed(1)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    trainer = decentralize(model, optimizer, strategy=strategy, seconds=60)
    batches = trainer.share(given)
    if states is not None:
        trainer.load_state_dict(states[rank])
    state, seen = None, []
    for epoch in range(batches.epoch, 2):
        for count, (numbers,) in enumerate(batches, 1):
            seen += [epoch * EXAMPLES + number for number in numbers.tolist()]
            model(torch.ones(1, 1)).sum().backward()
            trainer.step()
            if states is None and epoch == 1 and count == 2:
                state = trainer.state_dict()
                break
    trainer.finish()
    return state, seen


@pytest.mark.parametrize("strategy", ["dpsgd", "adpsgd"])
@pytest.mark.parametrize("kind", ["generator", "python"])
def test_every_example_once_and_what_was_left_after_a_start(kind: str, strategy: str) -> None:
    """Ranks whose generators differ, as in a script that seeds them by rank."""
    first = run(2, worker, strategy, kind, None, seconds=120)
    second = run(2, worker, strategy, kind, [state for state, _ in first], seconds=120)
    used = Counter(number for results in (first, second) for _, seen in results for number in seen)
    assert used == Counter(range(2 * EXAMPLES))


def unlike(rank: int, strategy: str, what: str) -> None:
    """Loaders of other lengths, or lists of them."""
    examples = list(range(EXAMPLES - 8 * rank))
    given: Any = [torch.tensor([number]) for number in examples]
    if what == "loader":
        given = DataLoader(torch.utils.data.Subset(DATA, examples), batch_size=BATCH)
    torch.manual_seed(1)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    trainer = decentralize(model, optimizer, strategy=strategy, seconds=60)
    for _ in trainer.share(given):
        model(torch.ones(1, 1)).sum().backward()
        trainer.step()


@pytest.mark.parametrize("strategy", ["ssgd", "adpsgd"])
@pytest.mark.parametrize("what", ["loader", "list"])
def test_loaders_that_differ_are_refused(strategy: str, what: str) -> None:
    for outcome in collect(launch(2, unlike, strategy, what), seconds=60).values():
        assert "the loaders of rank 1 have other batches than those of rank 0" in outcome.error


def test_an_epoch_that_has_other_batches_now() -> None:
    """The data was changed since the checkpoint; at an epoch's end that does no harm."""
    share = Share(loader("torch"), rank=0, learners=1)
    batches = iter(share)
    at_begin = share.state()
    next(batches)
    middle = share.state()
    fewer = DataLoader(torch.utils.data.Subset(DATA, range(40)), batch_size=BATCH, shuffle=True)
    with pytest.raises(UserError, match="middle of an epoch whose batches were others"):
        Share(fewer, rank=0, learners=1).restore(middle)
    Share(fewer, rank=0, learners=1).restore(at_begin)
    again = Share(loader("torch", 5), rank=0, learners=1)
    again.restore(middle)
    left = [number for (numbers,) in again for number in numbers.tolist()]
    assert len(left) == EXAMPLES - BATCH
    former = {name: middle[name] for name in ("epoch", "position")}  # of a version before
    Share(fewer, rank=0, learners=1).restore(former)


def test_an_epoch_without_a_batch_is_refused() -> None:
    """Epochs would be counted in which nothing is learned."""
    for few in ([], [torch.ones(1)] * 2, DataLoader(DATA, batch_size=24)):
        with pytest.raises(UserError, match="fewer batches than the 3 learners"):
            list(Share(few, rank=0, learners=3))
    once = Share((torch.ones(1) for _ in range(6)), rank=0, learners=3)
    assert len(list(once)) == 2
    with pytest.raises(UserError, match="an iterator, which has no epoch 2"):
        list(once)


def without(_: int) -> None:
    """A pool of no batch."""
    torch.manual_seed(1)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    list(decentralize(model, optimizer, strategy="adpsgd", seconds=60).share([]))


def test_nobody_waits_for_an_epoch_without_a_batch() -> None:
    outcomes = collect(launch(2, without), 120)
    assert all("an epoch has no batch" in each.error for each in outcomes.values())
