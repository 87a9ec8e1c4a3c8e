"""`Trainer.share` with asynchronous strategies: batches that all learners draw from."""

from __future__ import annotations

import os
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # optimizers would import it in every process, for seconds
from processes import collect, launch, run
from torch import nn

from hadpsgd.decentralized import decentralize
from hadpsgd.decentralized.trainer import Trainer

EXAMPLES, BATCH, EPOCHS = 242, 2, 2


def trainer_of(**options: Any) -> tuple[nn.Module, Trainer]:
    """A small network."""
    torch.manual_seed(1)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    return model, decentralize(model, optimizer, seed=4, **options)


def loader(workers: int = 0) -> Any:
    """Of examples that are their own numbers."""
    data = torch.utils.data.TensorDataset(torch.arange(EXAMPLES))
    return torch.utils.data.DataLoader(
        data, batch_size=BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )


def step(trainer: Trainer, model: nn.Module, seconds: float = 0.0) -> None:
    """One update."""
    model(torch.ones(1, 1)).square().sum().backward()
    time.sleep(seconds)
    trainer.step()


def worker(
    rank: int, options: dict[str, Any], seconds: list[float], workers: int, leaves: int
) -> list[list[int]]:
    """The examples of each epoch; rank 0 leaves the first after so many batches, if not 0."""
    model, trainer = trainer_of(**options)
    batches = trainer.share(loader(workers))
    seen: list[list[int]] = []
    size = options.get("super_learner", 1)
    with trainer:
        for epoch in range(EPOCHS):
            seen.append([])
            progress = -1.0
            for count, (numbers,) in enumerate(batches, 1):
                seen[-1] += numbers.tolist()
                step(trainer, model, seconds[rank])
                assert progress < batches.progress + bool(leaves) and batches.progress < epoch + 1
                progress = batches.progress
                if rank < size and epoch == 0 and count == leaves:
                    break
            if rank < size and epoch == 0 and leaves:
                assert batches.epoch == 0
                for (numbers,) in batches:
                    seen[-1] += numbers.tolist()
                    step(trainer, model, seconds[rank])
            assert batches.epoch == batches.progress == epoch + 1
    return seen


def each_once(results: list[list[list[int]]], examples: int = EXAMPLES) -> None:
    """In every epoch."""
    for epoch in range(EPOCHS):
        used = Counter(n for seen in results for n in seen[epoch])
        assert max(used.values()) == 1 and len(used) == examples


def test_a_slow_learner_does_less() -> None:
    """One of 4 is 5 times slower: of 121 batches an epoch an equal part would be 30."""
    results = run(4, worker, {"strategy": "adpsgd"}, [0.05, 0.01, 0.01, 0.01], 0, 0, seconds=120)
    each_once(results)
    for epoch in range(EPOCHS):
        slow, *others = (len(seen[epoch]) / BATCH for seen in results)
        assert slow < 20 and min(others) > 25
    first, second = ([seen[epoch] for seen in results] for epoch in range(EPOCHS))
    assert first != second


PARTNERS = {"strategy": "adpsgd", "schedule": "random-partner"}
PAIRS = {"strategy": "hadpsgd", "super_learner": 2}


@pytest.mark.parametrize(
    ("options", "examples", "workers", "leaves"),
    [
        ({"strategy": "rand"}, EXAMPLES, 0, 0),
        (PARTNERS, EXAMPLES, 2, 3),
        (PAIRS, EXAMPLES - BATCH, 0, 3),
        (PAIRS, EXAMPLES - BATCH, 2, 0),
    ],
)
def test_each_example_once_an_epoch(
    options: dict[str, Any], examples: int, workers: int, leaves: int
) -> None:
    """121 batches: of super-learners of 2 one is left over. With loading processes; and where
    learner 0 (with its super-learner) leaves the loop, and comes back to what is left."""
    results = run(4, worker, options, [0.002] * 4, workers, leaves, seconds=120)
    each_once(results, examples)


def of_a_middle(
    rank: int, options: dict[str, Any], states: list[dict[str, Any]] | None
) -> tuple[dict[str, Any] | None, list[int]]:
    """A checkpoint after so many batches that the second epoch has begun, and the examples of that
    epoch; or what was left of it then."""
    model, trainer = trainer_of(**options)
    batches = trainer.share([torch.tensor([number]) for number in range(40)])
    if states is not None:
        trainer.load_state_dict(states[rank])
        assert batches.epoch == 1 and 1 < batches.progress < 2
    state = None
    for epoch in range(batches.epoch, 2):
        seen = []
        for count, number in enumerate(batches, 1):
            seen.append(int(number))
            step(trainer, model, 0.005)
            if states is None and epoch == 1 and count == 3:
                state = trainer.state_dict()
                break
    trainer.finish()
    return state, seen


@pytest.mark.parametrize("options", [{"strategy": "adpsgd"}, PAIRS])
def test_a_resumed_epoch_has_what_was_left(options: dict[str, Any]) -> None:
    """A sequence of 40 batches, of which 12 were used."""
    first = run(4, of_a_middle, options, None, seconds=120)
    states = [state for state, _ in first]
    second = run(4, of_a_middle, options, states, seconds=120)
    used, rest = ([n for _, seen in results for n in seen] for results in (first, second))
    assert len(used) == 12
    assert Counter(used + rest) == Counter(range(40))


def is_away(rank: int) -> int:
    """Learner 0 validates after its first epoch, while the others do several."""
    model, trainer = trainer_of(**PAIRS, seconds=20)
    batches = trainer.share([torch.tensor([number]) for number in range(16)])
    for epoch in range(8):
        for _ in batches:
            step(trainer, model)
        if rank == 0 and epoch == 0:
            time.sleep(3)
    trainer.finish()
    return trainer.steps


def test_epochs_that_others_do_meanwhile_are_gone_through_together() -> None:
    """A super-learner that gets nothing of an epoch takes no step: its members come to the end of
    it one by one, and have yet to read that there is nothing when the first one is far ahead."""
    steps = run(4, is_away, seconds=60)
    assert steps[0] == steps[1] < steps[2] == steps[3]
    assert steps[0] + steps[2] == 8 * 8


def dies(rank: int, folder: Path) -> list[int]:
    """Rank 3 is gone in the middle, and leaves behind what it had trained on."""
    model, trainer = trainer_of(strategy="adpsgd")
    seen: list[int] = []
    for (numbers,) in trainer.share(loader()):
        seen += numbers.tolist()
        step(trainer, model, 0.005)
        if rank == 3 and trainer.steps == 4:
            (folder / "seen").write_text(" ".join(map(str, seen)))
            os._exit(1)
    trainer.finish()
    return seen


def test_what_a_dead_learner_had_claimed_is_done(tmp_path: Path) -> None:
    """Its last batch, of which the others know nothing, may be used again; no other."""
    outcomes = collect(launch(4, dies, tmp_path), 120)
    assert [outcomes[rank].error for rank in range(4)] == ["", "", "", "died"]
    used = Counter(n for rank in range(3) for n in outcomes[rank].value)
    used.update(map(int, (tmp_path / "seen").read_text().split()))
    assert len(used) == EXAMPLES and used.total() <= EXAMPLES + BATCH


def saves_at_its_own_pace(rank: int) -> int:
    """A checkpoint after three batches of its own, while others may wait for the epoch's end."""
    model, trainer = trainer_of(strategy="adpsgd")
    used = 0
    with trainer:
        for _ in trainer.share(list(range(40))):
            used += 1
            step(trainer, model, 0.03 if rank else 0.005)
            if used == 3:
                trainer.state_dict()
    return used


def test_a_checkpoint_in_an_epoch_that_others_have_come_to_the_end_of() -> None:
    """Learner 0, which leads, does most and waits; the others still save, and go on."""
    used = run(3, saves_at_its_own_pace, seconds=120)
    assert sum(used) == 40 and min(used) > 3 and used[0] == max(used)


class Unnumbered(torch.utils.data.IterableDataset[int]):
    """One after the other."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(16))


def unnumbered(rank: int) -> tuple[list[int], int]:  # noqa: ARG001
    """Examples, and how often it was said that they have no numbers."""
    model, trainer = trainer_of(strategy="adpsgd")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        batches = trainer.share(torch.utils.data.DataLoader(Unnumbered(), batch_size=2))
    seen = []
    for numbers in batches:
        seen += numbers.tolist()
        step(trainer, model)
    trainer.finish()
    return seen, sum("no numbers" in str(one.message) for one in said)


def test_what_has_no_numbers_is_dealt_out() -> None:
    results = run(4, unnumbered, seconds=120)
    assert [seen for seen, _ in results] == [
        [2 * n, 2 * n + 1, 2 * n + 8, 2 * n + 9] for n in range(4)
    ]
    assert [said for _, said in results] == [1, 0, 0, 0]
