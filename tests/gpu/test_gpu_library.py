"""`decentralize` with networks on a GPU that all learners share.

What forks comes first: a backward pass wakes CUDA in this process.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import test_trainer
import test_trainer_resumed
import torch
from processes import run, run_beside
from users_network import LEARNERS

from hadpsgd.decentralized.topology.schedules import create

SHARED: dict[str, Any] = {"between_gpus": "host"}
RESUMED = ("ssgd", "hadpsgd", "local")


def learner(rank: int, strategy: str, device: str) -> dict[str, Any]:
    """One process; products in single precision, not TF32."""
    torch.backends.cudnn.allow_tf32 = False
    return test_trainer.learner(rank, strategy, SHARED, "none", device)


def test_a_resumed_run_ends_with_the_same_bits(device: str) -> None:
    def ends(states: dict[str, list[Any] | None]) -> dict[str, list[Any]]:
        found = run_beside(
            {name: (4, resumed, (name, states[name], device)) for name in RESUMED}, seconds=120
        )
        wrong = [text for text in found.values() if isinstance(text, str)]
        assert not wrong, "\n".join(wrong)
        return {name: each for name, each in found.items() if not isinstance(each, str)}

    whole = ends(dict.fromkeys(RESUMED))
    again = ends({name: [middle for middle, _, _ in whole[name]] for name in RESUMED})
    for name in RESUMED:
        for (_, end, _), (_, resumed_end, _) in zip(whole[name], again[name], strict=True):
            assert (end == resumed_end).all(), name


def resumed(rank: int, strategy: str, states: list[Any] | None, device: str) -> Any:
    """One process; its checkpoint on the host, as a file's would be."""
    middle, end, seen = test_trainer_resumed.resumed(
        rank, strategy, states, 11, device=device, **SHARED
    )
    return on_host(middle), end, seen


def on_host(state: Any) -> Any:
    """Tensors, wherever in it, can go to another process."""
    if isinstance(state, torch.Tensor):
        return state.cpu()
    if isinstance(state, dict):
        return {key: on_host(value) for key, value in state.items()}
    return type(state)(map(on_host, state)) if isinstance(state, list | tuple) else state


def alone(_: int, device: str) -> float:
    """One process."""
    torch.backends.cudnn.allow_tf32 = False
    found = test_trainer.learner(0, "ssgd", {}, "none", device)
    return float(np.abs(found["own"] - found["mean"]).max())


def test_one_learner(device: str) -> None:
    assert run(1, alone, device) == [0.0]


@pytest.fixture(scope="module")
def ended(device: str) -> dict[str, list[Any] | str]:
    """A user's network by each strategy."""
    names = ("dpsgd", "ssgd", "adpsgd")
    return run_beside({n: (LEARNERS, learner, (n, device)) for n in names}, seconds=120)


@pytest.mark.parametrize("strategy", ["dpsgd", "ssgd", "adpsgd"])
def test_a_users_network(strategy: str, ended: dict[str, list[Any] | str]) -> None:
    """Convolution, statistics, AdamW: what torch makes in one process of a processor."""
    results = ended[strategy]
    assert not isinstance(results, str), results
    for result in results:
        assert np.isfinite(result["own"]).all()
        assert (result["mean"] == results[0]["mean"]).all()
    if strategy == "adpsgd":
        assert any(result["rounds"] for result in results)
        return
    ring = create("ring", learners=LEARNERS, seed=0).round(0).matrix()
    matrix = np.eye(LEARNERS) if strategy == "ssgd" else ring
    expected = test_trainer.wanted(matrix, shared=strategy == "ssgd")
    for i, result in enumerate(results):
        # Adam divides small numbers by small ones, and a GPU sums in other orders
        np.testing.assert_allclose(result["own"], expected[:, i], rtol=1e-3, atol=5e-4)
