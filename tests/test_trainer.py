"""`decentralize`: any network with any torch optimiser equals W[k+1] = W[k] T - update."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from processes import run
from torch import Tensor, nn
from users_network import LEARNERS, PASSES, STEPS, Net, adamw, backward, close, fill, vector

from hadpsgd.decentralized import decentralize
from hadpsgd.decentralized.agreement import size_of
from hadpsgd.decentralized.topology.schedules import create
from hadpsgd.errors import UserError


def learner(
    rank: int, strategy: str, options: dict[str, Any], zero: str, device: str = "cpu"
) -> dict[str, Any]:
    """One process."""
    model = Net().to(device)
    optimizer = adamw(model)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    trainer = decentralize(model, optimizer, strategy=strategy, backwards=PASSES, **options)
    frozen = model.frozen.weight.clone()
    for step in range(STEPS):
        if zero:
            optimizer.zero_grad(set_to_none=zero == "none")
        backward(model, rank, step)
        trainer.step()
        schedule.step()
    own = vector(model)
    trainer.finish()
    assert torch.equal(model.frozen.weight, frozen) and model.again.weight is model.tied.weight
    assert model.norm.num_batches_tracked is not None
    assert torch.isinf(model.mask[1])  # type: ignore[index]
    return {
        "own": own,
        "mean": vector(model),
        "batches": int(model.norm.num_batches_tracked),
        "rounds": trainer.engine.rounds,
    }


def wanted(matrix: np.ndarray, *, shared: bool = False, late: bool = False) -> np.ndarray:
    """W [elements, learners] after all steps, evaluated with torch in one process.

    W[k+1] = W[k] T + (what torch's optimizer does to W[k], or, `late`, to W[k] T) + (what forward
    does to the statistics of Phi). `shared`: all have one gradient, the mean.
    """
    models = [Net() for _ in range(LEARNERS)]
    optimizers = [adamw(model) for model in models]
    schedules = [torch.optim.lr_scheduler.StepLR(o, 2, 0.5) for o in optimizers]
    W = Phi = np.stack([vector(model) for model in models], axis=1)
    for step in range(STEPS):
        change = np.zeros_like(W)
        base = W @ matrix if late else W
        for i, model in enumerate(models):
            fill(model, Phi[:, i])
            model.zero_grad()
            backward(model, i, step)
            change[:, i] = vector(model) - Phi[:, i]
        if shared:
            for together in zip(*(m.parameters() for m in models), strict=True):
                if together[0].grad is not None:
                    mean = torch.stack([p.grad for p in together]).mean(0)  # type: ignore[misc]
                    for p in together:
                        p.grad = mean.clone()
            change = np.repeat(change.mean(1, keepdims=True), LEARNERS, axis=1)
        for i, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            fill(model, base[:, i])
            optimizer.step()
            schedules[i].step()
            change[:, i] += vector(model) - base[:, i]
        W = W @ matrix + change
        Phi = base if late else W
    return W


@pytest.mark.parametrize("zero", ["", "none", "zeros"])
def test_dpsgd_with_a_users_network(zero: str) -> None:
    results = run(LEARNERS, learner, "dpsgd", {}, zero, seconds=180)
    expected = wanted(create("ring", learners=LEARNERS, seed=0).round(0).matrix())
    for i, result in enumerate(results):
        close(result["own"], expected[:, i])
        close(result["mean"], expected.mean(1))
        assert (result["mean"] == results[0]["mean"]).all()
        assert result["batches"] == STEPS * PASSES
    # learners differ by far more than the tolerance, so that a missing mix would be seen
    assert np.abs(expected - expected.mean(1, keepdims=True)).max() > 1e-3


def test_d1d_with_a_users_network() -> None:
    """Gradients one round late; all weights are averaged, so the mean tells."""
    results = run(LEARNERS, learner, "d1d", {}, "none", seconds=180)
    expected = wanted(np.full((LEARNERS, LEARNERS), 1 / LEARNERS), late=True)
    for result in results:
        close(result["mean"], expected.mean(1))


@pytest.mark.parametrize("zero", ["", "none"])
def test_ssgd_with_a_users_network(zero: str) -> None:
    results = run(LEARNERS, learner, "ssgd", {}, zero, seconds=180)
    expected = wanted(np.eye(LEARNERS), shared=True)
    for result in results:
        close(result["own"], expected[:, 0])
        assert (result["own"] == results[0]["own"]).all()


EVERY = 2
OUTER_RATE, OUTER_MOMENTUM = 0.8, 0.6


def periodic(strategy: str) -> np.ndarray:
    """W [elements, learners] of diloco, noloco or sgp: steps of torch's optimizers, then a round.

    Statistics are mixed as the rest is, without the outer step's momentum.
    """
    models = [Net() for _ in range(LEARNERS)]
    optimizers = [adamw(model) for model in models]
    schedules = [torch.optim.lr_scheduler.StepLR(o, 2, 0.5) for o in optimizers]
    names = {"diloco": "complete", "noloco": "random-partner", "sgp": "one-peer-exponential"}
    rounds = create(names[strategy], learners=LEARNERS, seed=0)
    W = slow = np.stack([vector(model) for model in models], axis=1)
    velocity = np.zeros_like(W)
    statistics = slice(-2 * models[0].norm.num_features, None)
    for step in range(STEPS):
        for i, model in enumerate(models):
            model.zero_grad()
            backward(model, i, step)
            optimizers[i].step()
            schedules[i].step()
        every = 1 if strategy == "sgp" else EVERY
        if (step + 1) % every:
            continue
        W = np.stack([vector(model) for model in models], axis=1)
        mixed = W @ rounds.round(step // every).matrix()
        W, kept = mixed, mixed[statistics]
        if strategy == "diloco":  # torch's SGD with Nesterov's momentum, at rate OUTER_RATE
            velocity = OUTER_MOMENTUM * velocity + (slow - mixed)
            W = slow = slow - OUTER_RATE * (slow - mixed + OUTER_MOMENTUM * velocity)
        elif strategy == "noloco":  # tests/dense.py has it with the terms of the paper
            velocity = OUTER_MOMENTUM * velocity + OUTER_RATE * (mixed - slow)
            W = slow = slow + velocity
        W = W.copy()
        W[statistics] = kept
        for i, model in enumerate(models):
            fill(model, W[:, i])
    return W


@pytest.mark.parametrize("strategy", ["diloco", "noloco", "sgp"])
def test_outer_steps_with_a_users_network(strategy: str) -> None:
    """Each against torch in one process; variances stay positive, whatever the momentum."""
    options: dict[str, Any] = {}
    if strategy != "sgp":
        options = {"average_every": EVERY, "outer_rate": OUTER_RATE}
        options["outer_momentum"] = OUTER_MOMENTUM
    results = run(LEARNERS, learner, strategy, options, "", seconds=180)
    expected = periodic(strategy)
    for i, result in enumerate(results):
        close(result["own"], expected[:, i])
        close(result["mean"], expected.mean(1))
        assert result["rounds"] == (STEPS if strategy == "sgp" else STEPS // EVERY)
    spread = np.abs(expected - expected.mean(1, keepdims=True)).max()
    assert (spread < 1e-9) == (strategy == "diloco")


@pytest.mark.parametrize(
    "strategy, options",
    [
        ("adpsgd", {}),
        ("adpsgd", {"schedule": "random-partner"}),
        ("rand", {}),
        ("local", {"average_every": 3}),
        ("hadpsgd", {"super_learner": 2}),
        ("hadpsgd", {"super_learner": 2, "among": "dpsgd"}),
        ("hadpsgd", {"super_learner": 2, "among": "sgp"}),
    ],
)
def test_all_end_with_one_mean(strategy: str, options: dict[str, Any]) -> None:
    results = run(LEARNERS, learner, strategy, options, "none", seconds=180)
    for result in results:
        assert (result["mean"] == results[0]["mean"]).all()
        assert np.isfinite(result["mean"]).all()
        assert result["rounds"] > 0
    if strategy == "hadpsgd":
        for first, second in (results[:2], results[2:]):
            assert (first["own"] == second["own"]).all()
    if options.get("among") or strategy == "local":  # nothing moves after the last step
        close(results[0]["mean"], np.mean([result["own"] for result in results], axis=0))


def alone(**options: Any) -> tuple[Net, torch.optim.Optimizer, Any]:
    """One process, the whole network."""
    model = Net()
    optimizer = adamw(model)
    return model, optimizer, decentralize(model, optimizer, **options)


def test_one_process_is_torch() -> None:
    """Bit for bit, with a layer that takes no part in some steps and is then left alone."""
    model, _, trainer = alone()
    theirs = Net()
    optimizer = adamw(theirs)
    for step in range(4):
        for net in (model, theirs):
            if step % 2:
                net.conv.weight.square().sum().backward()
            else:
                backward(net, 0, step)
        trainer.step()
        optimizer.step()
        optimizer.zero_grad()
    trainer.finish()
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=1e-6, atol=1e-8)


def test_bfloat16_parameters_have_weights_of_single_precision() -> None:
    """Many changes, each too small for the parameter's own type, are not lost in mixing."""
    model = nn.Linear(2, 2, bias=False).bfloat16()
    start = model.weight.detach().float().clone()
    trainer = decentralize(model, torch.optim.SGD(model.parameters(), lr=0.5))
    model(torch.ones(1, 2, dtype=torch.bfloat16)).sum().backward()
    trainer.step()
    assert model.weight.dtype == torch.bfloat16
    assert trainer.engine.weights.dtype == torch.float32
    torch.testing.assert_close(model.weight.float(), start - 0.5, rtol=0.01, atol=0.01)


def test_autocast_and_a_limit_to_the_norm() -> None:
    model, theirs = nn.Linear(3, 1), nn.Linear(3, 1)
    theirs.load_state_dict(model.state_dict())
    trainer = decentralize(model, torch.optim.SGD(model.parameters(), lr=1.0), clip_norm=0.1)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(torch.ones(4, 3)).sum() * 100
    loss.backward()
    report = trainer.step()
    assert report.norm > 100
    pairs = zip(model.parameters(), theirs.parameters(), strict=True)
    moved = torch.cat([(ours - before).detach().flatten() for ours, before in pairs])
    assert float(moved.norm()) == pytest.approx(0.1, rel=1e-3)


def given(model: nn.Module, parameters: list[Tensor] | None = None) -> Any:
    """With an optimizer of its parameters, or of others."""
    optimizer = torch.optim.SGD(model.parameters() if parameters is None else parameters, lr=0.1)
    return decentralize(model, optimizer)


def one_memory() -> nn.Module:
    """Two parameters in one place."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight.data = model[0].weight.data  # type: ignore[union-attr,operator]
    return model


def test_what_cannot_work_is_refused_at_once() -> None:
    linear = nn.Linear(2, 2)
    with pytest.raises(UserError, match="sparse=False"):
        given(nn.Embedding(4, 2, sparse=True))
    with pytest.raises(UserError, match=r"1 parameters .* in no group .* shape \(2,\)"):
        given(linear, [linear.weight])
    with pytest.raises(UserError, match="are not the model's"):
        given(linear, [*linear.parameters(), nn.Parameter(torch.ones(3))])
    with pytest.raises(UserError, match="overlap in memory"):
        given(one_memory())
    with pytest.raises(UserError, match="different devices"):
        given(nn.Sequential(linear, nn.Linear(2, 2, device="meta")))
    with pytest.raises(UserError, match="weight has no numbers yet"):
        given(nn.Linear(2, 2, device="meta"))
    with pytest.raises(UserError, match="seconds to wait are above 0 and up to 1e"):
        decentralize(linear, torch.optim.SGD(linear.parameters(), lr=0.1), seconds=math.nan)
    with pytest.raises(UserError, match="Run the model once"):
        given(nn.LazyLinear(2))
    with pytest.raises(UserError, match="no parameters"):
        decentralize(linear.requires_grad_(False), torch.optim.SGD([torch.ones(1)], lr=0.1))
    with pytest.raises(UserError, match="needs the loss again"):
        decentralize(nn.Linear(2, 2), torch.optim.LBFGS(nn.Linear(2, 2).parameters()))
    with pytest.raises(UserError, match="one super-learner, which has none to mix with"):
        size_of("hadpsgd", world=2, super_learner=2)
    with pytest.raises(UserError, match="no strategy 'gossip' here"):
        decentralize(nn.Linear(2, 2), torch.optim.SGD([torch.ones(1)], lr=0.1), strategy="gossip")


def test_nothing_stops_learning_in_silence() -> None:
    model, optimizer, trainer = alone()
    backward(model, 0, 0)
    with pytest.raises(UserError, match="beside the trainer"):
        optimizer.step()
    model.frozen.requires_grad_(True)
    with pytest.raises(UserError, match=r"frozen.weight requires gradients now"):
        trainer.step()
    model.frozen.requires_grad_(False)
    with pytest.raises(UserError, match="after the first step"):
        trainer.step()
        trainer.load_state_dict({})
    model.double()
    with pytest.raises(UserError, match="moved or changed its type"):
        trainer.step()


def careless(rank: int, fault: str) -> str:
    """What a learner is told whose gradients are shared while backward runs."""
    torch.manual_seed(rank if fault == "start" else 0)
    norm = nn.BatchNorm1d(900)  # what its first forward adds to statistics is the engine's own
    model = nn.Sequential(nn.Linear(600, 900), norm, nn.Linear(900, 3000), nn.Linear(3000, 1))
    if fault == "frozen":  # of two ranks' one buffers, other parameters would be mixed
        model[2 + rank].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    try:
        trainer = decentralize(model, optimizer, strategy="ssgd")
        model(torch.ones(2, 600)).sum().backward()
        if fault == "again":
            model(torch.ones(2, 600)).sum().backward()
        elif fault == "clip":
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        trainer.step()
        trainer.finish()
    except UserError as error:
        return str(error)
    return "no fault"


@pytest.mark.parametrize(
    "fault, told",
    [
        ("again", "decentralize(backwards=...)"),
        ("clip", "give clip_norm to decentralize()"),
        ("start", "rank 1 starts from other weights than rank 0"),
        ("frozen", "rank 1 learns other parameters than rank 0"),
        ("none", "no fault"),
    ],
)
def test_what_shared_gradients_cannot_do(fault: str, told: str) -> None:
    assert all(told in line for line in run(2, careless, fault, seconds=180))
