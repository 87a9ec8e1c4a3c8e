"""The registry of strategies."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import dense
import numpy as np
import pytest
from simulated_task import RATE, Small, small_gradient

from hadpsgd.config.training import Run
from hadpsgd.decentralized.core.sgd import Sgd
from hadpsgd.decentralized.network.speeds import ComputeTimes
from hadpsgd.decentralized.simulated.simulation import Setting, Simulation
from hadpsgd.decentralized.strategies import registry
from hadpsgd.decentralized.strategies.periodic import Periodic
from hadpsgd.decentralized.strategies.registry import STRATEGIES, Choice, Strategy, create
from hadpsgd.decentralized.topology.schedules import SCHEDULES
from hadpsgd.decentralized.topology.schedules import create as create_schedule
from hadpsgd.errors import UserError

DOCS = Path(__file__).resolve().parents[1] / "docs/strategies.md"
LONGEST = 100
"""Lines of a strategy's file."""


@pytest.mark.parametrize("kind", STRATEGIES.values(), ids=list(STRATEGIES))
def test_a_strategy_is_one_short_file(kind: type[Strategy]) -> None:
    file = Path(inspect.getfile(kind))
    assert file.parent == Path(registry.__file__).parent
    assert len(file.read_text(encoding="utf-8").splitlines()) < LONGEST
    assert kind.summary and kind.summary != Strategy.__dict__.get("summary")


def test_a_config_may_name_every_strategy_and_schedule_of_the_engine() -> None:
    """And nothing else but torch's own DDP."""
    fields = Run.model_fields
    assert set(get_args(fields["schedule"].annotation)) == SCHEDULES.keys()
    assert set(get_args(fields["strategy"].annotation)) == {*STRATEGIES, "ddp"}


@pytest.mark.parametrize("kind", STRATEGIES.values(), ids=list(STRATEGIES))
def test_a_strategy_fits_the_schedule_that_it_takes_by_default(kind: type[Strategy]) -> None:
    schedule = create_schedule(kind.default_schedule, learners=4)
    assert kind.misfit(schedule.name, symmetric=schedule.symmetric) is None


def test_a_strategy_takes_the_values_that_it_has_fields_for() -> None:
    choice = Choice(strategy="local", every=3, synchronous_steps=2, pace=9)
    local = create(choice)
    assert (local.shared_steps, local.pace) == (2, 1)
    assert create(Choice(strategy="adpsgd", pace=9)).pace == 9


def test_super_learners_take_the_strategy_among_them() -> None:
    assert create(Choice(strategy="hadpsgd", among="dpsgd")).name == "dpsgd"
    assert create(Choice(strategy="hadpsgd")).name == "adpsgd"
    assert create(Choice(strategy="local", among="dpsgd")).name == "local"


def test_an_unknown_strategy_is_refused_with_the_names_that_there_are() -> None:
    with pytest.raises(UserError, match="no strategy 'sgd'") as refusal:
        create(Choice(strategy="sgd"))
    assert all(name in str(refusal.value) for name in STRATEGIES)


def test_names_of_strategies_cost_no_import_of_torch() -> None:
    """Every command and every job of a workflow reads the config."""
    code = "import sys, hadpsgd.config.training; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_docs_have_a_row_for_each_strategy() -> None:
    rows = re.findall(r"^\| `([a-z0-9]+)` \|", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted([*STRATEGIES, "ddp"])


def test_the_strategy_written_in_the_docs_works() -> None:
    """As it stands there, in simulated time, against the dense evaluation of what it says."""
    [code] = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert len(code.splitlines()) <= 10
    names: dict[str, Any] = {"dataclass": dataclass, "Periodic": Periodic}
    exec(f"from __future__ import annotations\n{code}", names)
    gossip: Strategy = names["Gossip"](every=3)
    rounds, learners, steps = create_schedule("ring", learners=5), 5, 8
    setting = Setting(
        strategy=gossip,
        schedule=rounds,
        compute=ComputeTimes(seconds=1.0, factors={0: 2.5}),
        sgd=Sgd(momentum=0.9),
        rate=lambda _: RATE,
    )
    simulation = Simulation(setting, Small())
    weights = np.repeat(simulation.mean().numpy()[:, None].copy(), learners, axis=1)
    simulation.run(steps=steps)
    velocity = np.zeros_like(weights)
    for k in range(steps):
        gradient = dense.gradients(small_gradient, k, weights)
        direction, velocity = dense.Sgd(momentum=0.9).direction(gradient, weights, velocity)
        weights = weights - RATE * direction
        if (k + 1) % 3 == 0:
            weights = weights @ rounds.round(0).matrix()
    np.testing.assert_allclose(simulation.weights().numpy().T, weights, rtol=1e-11)
