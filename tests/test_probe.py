"""The probe of virtual runs: its numbers against NumPy, and that it changes none of the run's."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from test_virtual import rows, run_of_kind, train
from torch import Tensor, nn
from training_data import write_config
from training_runs import write_examples

from hadpsgd.config import check, load, run_key
from hadpsgd.decentralized.core.buffers import Flat, flatten
from hadpsgd.egs.dataset import Dataset, Plan
from hadpsgd.errors import UserError
from hadpsgd.training.curvature import PRODUCTS, hessian_product, top_eigenvalue
from hadpsgd.training.data import Feed
from hadpsgd.training.probe import Probe

NODES, BATCH = 4, 24


@pytest.fixture(scope="module")
def egs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Examples to train on and held-out ones."""
    return write_examples(tmp_path_factory.mktemp("egs"))


class Squares(nn.Module):
    """Half the squared distance of the first output from the pdf-id, a mean over frames."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.line = nn.Linear(inputs, 1)

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        """Of features [subsequences, frames, inputs] and pdf-ids."""
        return (self.line(x)[..., 0] - targets).square().mean() / 2


class Curved(nn.Module):
    """A network whose Hessian is another at every point, and has negative eigenvalues."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, 4), nn.Tanh(), nn.Linear(4, outputs))

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy over frames."""
        return nn.functional.cross_entropy(self.layers(x).flatten(0, 1), targets.flatten())


def probe_of(module: nn.Module, egs: Path, dtype: torch.dtype) -> tuple[Probe, Flat]:
    flat = flatten(module.to(dtype))
    data = Dataset(egs / "train")
    plan = Plan(size=len(data), batch=BATCH, seed=1)
    feed = Feed(data, plan, rank=0, learners=NODES, device=torch.device("cpu"), dtype=dtype)
    return Probe(module, flat, feed, nodes=NODES, batch=BATCH, seed=1), flat


def apart(flat: Flat, spread: float) -> list[Tensor]:
    """Weights of the nodes: those of `flat`, each with its own noise where there are parameters."""
    torch.manual_seed(5)
    made = []
    for _ in range(NODES):
        weights = flat.weights.clone()
        for slot in flat.slots:
            slot.of(weights).add_(torch.randn(slot.parameter.shape) * spread)
        made.append(weights)
    return made


def frames(probe: Probe, indices: NDArray[np.int64]) -> tuple[np.ndarray, np.ndarray]:
    """Inputs [frames, inputs + 1], the last of them 1, and targets [frames]."""
    features, labels = probe._feed.dataset.gather(np.sort(indices))
    x = features.astype(np.float64).reshape(-1, features.shape[-1])
    return np.hstack([x, np.ones((len(x), 1))]), labels.astype(np.float64).ravel()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_square_loss_is_known_in_closed_form(egs: Path, dtype: torch.dtype) -> None:
    """Gradient X'(Xw - y)/n, Hessian X'X/n: all of the landscape, by NumPy."""
    probe, flat = probe_of(Squares(6), egs, dtype)
    all_weights = apart(flat, 0.3)
    found = probe.measure(lambda node: all_weights[node].clone())

    slots = sorted(flat.slots, key=lambda slot: slot.parameter.numel())
    dense = [
        np.concatenate([slot.of(w).double().numpy().ravel() for slot in slots[::-1]])
        for w in all_weights
    ]
    mean = np.mean(dense, axis=0)

    def gradient(w: np.ndarray, indices: NDArray[np.int64]) -> np.ndarray:
        x, y = frames(probe, indices)
        return np.asarray(x.T @ (x @ w - y) / len(x))

    pairs = list(zip(dense, probe.minibatches, strict=True))
    own = np.mean([gradient(w, part) for w, part in pairs], axis=0)
    same = np.mean([gradient(mean, part) for _, part in pairs], axis=0)
    slope = gradient(mean, probe.reference)
    norm = np.linalg.norm
    distance = np.sqrt(np.mean([norm(w - mean) ** 2 for w in dense]))
    x, _ = frames(probe, probe.reference)
    close = 1e-4 if dtype == torch.float32 else 1e-9
    assert found.difference_noise == pytest.approx(norm(own - same) / norm(same), rel=close)
    assert found.minibatch_noise == pytest.approx(norm(same - slope) / norm(same), rel=close)
    assert found.noise_per_distance == pytest.approx(norm(own - same) / distance, rel=close)
    assert found.effective_rate == pytest.approx(own @ slope / (slope @ slope), rel=close)
    top = np.linalg.eigvalsh(x.T @ x / len(x))[-1]
    assert found.sharpness == pytest.approx(top, rel=0.01) and found.difference_noise > 0.01


def test_the_sharpness_is_that_of_the_dense_hessian(egs: Path) -> None:
    """By automatic differentiation twice, in double precision, at a point of negative curvature."""
    module = Curved(6, 7)
    probe, flat = probe_of(module, egs, torch.float64)
    weights = apart(flat, 0.5)
    mean = torch.stack(weights).mean(0)
    x, targets = probe._feed.of(np.sort(probe.reference))
    names = [name for name, _ in module.named_parameters()]
    flat.point_to(mean)
    values = [p.detach().clone() for p in module.parameters()]
    sizes = [value.numel() for value in values]

    def loss(joined: Tensor) -> Tensor:
        parts = [part.view_as(v) for part, v in zip(joined.split(sizes), values, strict=True)]
        named = dict(zip(names, parts, strict=True))
        result: Tensor = torch.func.functional_call(module, named, (x, targets))
        return result

    joined = torch.cat([value.flatten() for value in values])
    hessian = torch.autograd.functional.hessian(loss, joined)
    eigenvalues = torch.linalg.eigvalsh(hessian)
    found = probe.measure(lambda node: weights[node].clone())
    assert found.sharpness == pytest.approx(float(eigenvalues[-1]), rel=0.01)
    assert float(eigenvalues[0]) < -1e-3


@pytest.mark.parametrize("values", [[-50.0, 3.0, 1.0], [2.0, 2.0, 2.0], [0.0, 0.0, -1.0], [9.0]])
def test_the_largest_eigenvalue_is_not_the_one_of_largest_magnitude(values: list[float]) -> None:
    turned, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(len(values), len(values))))
    matrix = torch.from_numpy(turned @ np.diag(values) @ turned.T)
    start = torch.ones(len(values), dtype=torch.float64)
    found = top_eigenvalue(lambda v: matrix @ v, start)
    assert found == pytest.approx(max(values), rel=0.01, abs=1e-9)


def test_products_are_few_and_one_that_is_not_finite_ends_it() -> None:
    draws = np.random.default_rng(1).normal(size=(300, 300))
    matrix = torch.from_numpy((draws + draws.T) / 35 + 3 * np.ones((300, 300)) / 300)
    asked = []

    def product(v: Tensor) -> Tensor:
        asked.append(v)
        return matrix @ v

    top = float(torch.linalg.eigvalsh(matrix)[-1])
    start = torch.from_numpy(np.random.default_rng(2).normal(size=300))
    assert top_eigenvalue(product, start) == pytest.approx(top, rel=0.02)
    assert len(asked) <= PRODUCTS
    assert np.isnan(top_eigenvalue(lambda v: v * torch.nan, start))


def test_products_by_differences_are_those_of_the_matrix() -> None:
    matrix = torch.tensor([[2.0, 1.0], [1.0, -3.0]])
    product = hessian_product(lambda w: matrix @ w, torch.tensor([5.0, 1.0]))
    direction = torch.tensor([0.6, 0.8])
    assert torch.allclose(product(direction), matrix @ direction, rtol=1e-3)


def test_equal_weights_make_no_noise(egs: Path) -> None:
    probe, flat = probe_of(Curved(6, 7), egs, torch.float32)
    found = probe.measure(lambda _: flat.weights.clone())
    assert found.difference_noise == 0.0
    told = found.metrics()
    assert "probe_noise_per_distance" not in told and told["probe_minibatch_noise"] > 0


def test_nothing_that_training_has_is_touched(egs: Path) -> None:
    probe, flat = probe_of(Curved(6, 7), egs, torch.float32)
    weights = apart(flat, 0.1)
    before = copy.deepcopy([flat.weights, flat.gradient, *weights, torch.get_rng_state()])
    probe.measure(lambda node: weights[node])
    after = [flat.weights, flat.gradient, *weights, torch.get_rng_state()]
    assert all(torch.equal(one, two) for one, two in zip(before, after, strict=True))


def test_no_example_is_both_of_a_minibatch_and_of_the_reference(egs: Path) -> None:
    probe, _ = probe_of(Squares(6), egs, torch.float32)
    minibatches = np.concatenate(probe.minibatches)
    assert len(minibatches) == BATCH == len(set(minibatches.tolist()))
    assert not set(minibatches.tolist()) & set(probe.reference.tolist())


@pytest.mark.parametrize("kind", ["ssgd", "adpsgd", "hadpsgd", "d1d"])
def test_a_run_ends_with_the_same_bits_and_has_the_rows(
    kind: str, egs: Path, tmp_path: Path
) -> None:
    """With and without, dropout included; the rows stand beside the distance of each epoch."""
    run = run_of_kind(kind) | {"model": {"layers": 2, "dropout": 0.2}}
    bare = train(tmp_path / "bare", egs, run)
    probed = train(tmp_path / "probed", egs, {**run, "probe": True})
    assert torch.equal(bare, probed)
    for with_, without in zip(rows(tmp_path / "probed"), rows(tmp_path / "bare"), strict=True):
        extra = with_.keys() - without.keys()
        assert {key: with_[key] for key in without} == without
        assert bool(extra) == ("distance_from_mean" in with_)
    found = [row for row in rows(tmp_path / "probed") if "probe_sharpness" in row]
    assert [row["epoch"] for row in found] == [1, 2, 3]
    for row in found:
        assert row["probe_sharpness"] > 0 and 0.3 < row["probe_effective_rate"] < 3
        differs = row["distance_from_mean"] > 0
        assert (row["probe_difference_noise"] > 0) == differs
        assert ("probe_noise_per_distance" in row) == differs
    if kind == "ssgd":
        assert all(row["probe_difference_noise"] == 0 for row in found)
    else:
        assert found[0]["probe_difference_noise"] > 1e-3
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize(
    ("run", "told"),
    [
        ({"strategy": "adpsgd", "learners": 4, "probe": True}, "launcher is virtual"),
        ({"launcher": "virtual", "probe": True}, "several learners"),
        (
            {"strategy": "adpsgd", "learners": 4, "launcher": "virtual", "probe": True,
             "precision": "tf32"},
            "tf32",
        ),
    ],
)  # fmt: skip
def test_a_probe_where_there_is_nothing_to_measure(
    run: dict[str, Any], told: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=told):
        load(write_config(tmp_path, [run]))


def test_a_probe_makes_a_run_again_and_leaves_the_keys_of_others() -> None:
    """What was trained before there was such a key is not trained again."""
    run = {"strategy": "adpsgd", "learners": 4, "launcher": "virtual"}

    def key(**more: Any) -> str:
        content = {"name": "x", "corpus": {"kind": "builtin"},
                   "training": {"runs": [{**run, **more}]}}  # fmt: skip
        made = check(content, "test")
        return run_key(made, made.training.members[0].id)

    assert key() == key(probe=False) != key(probe=True)
