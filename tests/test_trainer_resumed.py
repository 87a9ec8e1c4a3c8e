"""`decentralize`: checkpoints of a rank, and the shares of the examples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo  # optimizers would import it in every process, for seconds
from processes import run
from torch import nn

from hadpsgd.decentralized import MixedCheckpointError, decentralize
from hadpsgd.errors import UserError

OWN: dict[str, dict[str, Any]] = {
    "hadpsgd": {"super_learner": 2, "among": "dpsgd"},
    "local": {"average_every": 8},
    "diloco": {"average_every": 2},
    "noloco": {"average_every": 2},
}
"""Options that a strategy takes alone."""


def resumed(
    rank: int,
    strategy: str,
    states: list[dict[str, Any]] | None,
    steps: int,
    device: str = "cpu",
    **options: Any,
) -> Any:
    """One process on a shared loader: a checkpoint of its middle, its end, its examples."""
    torch.manual_seed(1)
    data = torch.utils.data.TensorDataset(torch.randn(50, 3), torch.randn(50, 1))
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    own = OWN.get(strategy, {})
    trainer = decentralize(model, optimizer, strategy=strategy, seed=4, **own, **options)
    loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
    share = trainer.share(loader)
    if states is not None:
        trainer.load_state_dict(states[rank])
    middle, seen = None, []
    with trainer:
        while trainer.steps < steps:
            for x, y in share:
                seen.append(x)
                nn.functional.mse_loss(model(x.to(device)), y.to(device)).backward()
                trainer.step()
                if trainer.steps == 5:
                    middle = trainer.state_dict()
                if trainer.steps == steps:
                    break
    return middle, vector_of(model), torch.cat(seen).numpy()


def vector_of(model: nn.Module) -> np.ndarray:
    """All of a model's state."""
    return torch.cat([v.double().flatten() for v in model.state_dict().values()]).cpu().numpy()


@pytest.mark.parametrize(
    "strategy", ["dpsgd", "d1d", "ssgd", "local", "hadpsgd", "diloco", "noloco", "sgp"]
)
def test_a_resumed_run_ends_with_the_same_bits(strategy: str) -> None:
    """From copies of the middle of an epoch, optimizer and place in the data included."""
    whole = run(4, resumed, strategy, None, 11, seconds=180)
    states = [middle for middle, _, _ in whole]
    again = run(4, resumed, strategy, states, 11, seconds=180)
    for (_, end, seen), (_, resumed_end, rest) in zip(whole, again, strict=True):
        assert (end == resumed_end).all()
        assert (seen[5 * 4 :] == rest).all()


def test_shares_of_an_epoch_are_disjoint() -> None:
    """3 rounds of 4 batches of 4: 48 of 50 examples, each once."""
    results = run(4, resumed, "dpsgd", None, 3, seconds=180)
    seen = np.concatenate([seen for _, _, seen in results])
    assert len(seen) == 48 == len(np.unique(seen, axis=0))


def asynchronous(rank: int, options: dict[str, Any], states: list[dict[str, Any]] | None) -> Any:
    """Pauses for checkpoints while others go on for a while."""
    torch.manual_seed(1)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    trainer = decentralize(model, optimizer, **options)
    steps = 4 + rank // options.get("super_learner", 1)
    if states is not None:
        trainer.load_state_dict(states[rank])
        assert trainer.steps == steps
    for step in range(steps):
        model(torch.ones(1, 3)).square().sum().backward()
        trainer.step()
        if step in (1, 2, 3):
            trainer.state_dict()
    state = trainer.state_dict()
    trainer.finish()
    return state, vector_of(model)


@pytest.mark.parametrize(
    "options",
    [
        {"strategy": "adpsgd"},
        {"strategy": "adpsgd", "schedule": "random-partner"},
        {"strategy": "hadpsgd", "super_learner": 2},
    ],
)
def test_an_asynchronous_run_is_saved_and_resumed(options: dict[str, Any]) -> None:
    """Members of a super-learner, too, at the same step with equal copies."""
    first = run(4, asynchronous, options, None, seconds=180)
    states = [state for state, _ in first]
    second = run(4, asynchronous, options, states, seconds=180)
    for results in (first, second):
        assert all((weights == results[0][1]).all() for _, weights in results)
    together = options["strategy"] == "hadpsgd"
    wanted = [8, 8, 10, 10] if together else [8, 10, 12, 14]
    assert [state["learner"]["steps"] for state, _ in second] == wanted
    for one, other in ((0, 1), (2, 3)) if together else ():
        assert torch.equal(*(states[rank]["learner"]["weights"] for rank in (one, other)))
        assert states[one]["learner"]["rounds"] == states[other]["learner"]["rounds"]


def saved_twice(_: int) -> list[dict[str, Any]]:
    """Checkpoints after a step and after two, of learners that are in step."""
    trainer, model = two_in_step()
    states = []
    for _ in range(2):
        model(torch.ones(1, 3)).square().sum().backward()
        trainer.step()
        states.append(trainer.state_dict())
    trainer.finish()
    return states


def two_in_step() -> tuple[Any, nn.Module]:
    torch.manual_seed(1)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return decentralize(model, optimizer, strategy="dpsgd", seconds=60), model


def refused(rank: int, states: list[dict[str, Any] | None]) -> str:
    """What a learner is told that loads its own of these, before it takes a step."""
    trainer, model = two_in_step()
    with pytest.raises(UserError) as error:
        if (state := states[rank]) is not None:
            trainer.load_state_dict(state)
        model(torch.ones(1, 3)).square().sum().backward()
        trainer.step()
    return str(error.value)


def test_checkpoints_that_do_not_belong_together_are_refused() -> None:
    """As they lie there when processes are killed while they save, or others are started."""
    (first, second), (other, later) = run(2, saved_twice, seconds=60)
    ((again, _), _) = run(2, saved_twice, seconds=60)
    for states, message in (
        ([second, other], "rank 1 was not saved together with that of rank 0"),
        ([again, other], "rank 1 was not saved together with that of rank 0"),
        ([first, None], "rank 1 loads no checkpoint"),
    ):
        for told in run(2, refused, states, seconds=60):
            assert message in told
    swapped = run(2, refused, [later, second], seconds=60)
    assert [told.split(".")[0] for told in swapped] == [
        "the checkpoint is of rank 1, and this is 0",
        "the checkpoint is of rank 0, and this is 1",
    ]
    for told in run(3, refused, [first, other, first], seconds=60):
        assert "the checkpoint is one of 2 learners, and these are 3" in told


def goes_back(rank: int, states: list[list[dict[str, Any]]]) -> int:
    """Steps of the first checkpoint that this learner can load."""
    trainer, _ = two_in_step()
    for state in states[rank]:
        try:
            trainer.load_state_dict(state)
        except MixedCheckpointError:
            continue
        break
    steps = trainer.steps
    trainer.finish()
    return steps


def test_an_older_checkpoint_is_loaded_where_the_newest_is_mixed() -> None:
    (first, second), (other, later) = run(2, saved_twice, seconds=60)
    (_, (_, mixed)) = run(2, saved_twice, seconds=60)
    assert run(2, goes_back, [[second, first], [mixed, other]], seconds=60) == [1, 1]
    assert run(2, goes_back, [[second, first], [later, other]], seconds=60) == [2, 2]


def has_none_left(rank: int, states: list[list[dict[str, Any]]]) -> str:
    """What a learner is told where one begins anew after its only checkpoint was mixed."""
    with pytest.raises(UserError) as error:
        goes_back(rank, states)
    return str(error.value)


def test_one_that_begins_anew_where_the_newest_is_mixed_is_told() -> None:
    """The others waited for it, and it for them."""
    (first, second), _ = run(2, saved_twice, seconds=60)
    (_, (_, mixed)) = run(2, saved_twice, seconds=60)
    for told in run(2, has_none_left, [[second, first], [mixed]], seconds=30):
        assert "rank 1 loads no checkpoint, the others do" in told


def another(state: dict[str, Any], **changed: Any) -> str:
    """What a learner is told that loads a checkpoint of `two_in_step`, and is not as that was."""
    torch.manual_seed(1)
    model = changed.pop("model", nn.Linear)(3, 2)
    optimizer = changed.pop("optimizer", torch.optim.SGD)(model.parameters(), lr=0.1)
    trainer = decentralize(model, optimizer, **{"strategy": "dpsgd", **changed})
    before = vector_of(model).copy()
    with pytest.raises(UserError) as error:
        trainer.load_state_dict(state)
    assert (vector_of(model) == before).all()
    return str(error.value)


def test_checkpoints_of_something_else_are_refused() -> None:
    """Each ended in an error of Python or torch, some when a part had been loaded."""
    trainer, _ = two_in_step()
    state = trainer.state_dict()
    trainer.finish()
    for changed, message in (
        ({"optimizer": torch.optim.Adam}, "optimizer is SGD of 2 parameters, and this one is Adam"),
        ({"model": lambda i, o: nn.Linear(i, o, bias=False)}, "it has bias [2], this one no more"),
        ({"model": lambda i, o: nn.Linear(i + 1, o)}, "it has weight [2, 3], this one weight [2,"),
    ):
        assert message in another(state, **changed)
    state["of"]["strategy"] = "d1d"
    assert "strategy is d1d, and this one is single" in another(state)
    assert "it has no 'learner'" in another({"model": 1})
    del state["of"]
    state["shares"] = [1]
    assert "knows 1 shares, not 0" in another(state)


def one_after_another(_: int) -> list[str]:
    """Two trainers of a process; what one is told that begins while the first is in use."""
    told = []
    for number in range(2):
        trainer, model = two_in_step()
        if number == 0:
            with pytest.raises(UserError, match="has not finished") as error:
                two_in_step()
            told.append(str(error.value))
        model(torch.ones(1, 3)).square().sum().backward()
        trainer.step()
        told.append(trainer.state_dict()["of"]["moment"])
        trainer.finish()
    return told


def test_a_process_has_one_trainer_after_another() -> None:
    """The second one read what ranks had said to the first: "starts from other weights".

    One that the process has that they were forked from is not theirs.
    """
    unfinished, _ = two_in_step()
    one, other = run(2, one_after_another, seconds=60)
    unfinished.finish()
    assert one == other
    assert one[1] != one[2]
