"""Every setting of a run reaches the engine: each field, changed alone, changes what that gets."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from hadpsgd.config import check, settings_of
from hadpsgd.config.settings import LearningRate, Settings
from hadpsgd.config.training import Injected, Run
from hadpsgd.decentralized.core.sgd import Sgd
from hadpsgd.decentralized.strategies.registry import Choice, Strategy, create
from hadpsgd.training.engines import injection_of, sgd_of, strategy_of
from hadpsgd.training.rate import rate

STEPS = 10

# field of a run: a run, and another value of the field
CHANGES: dict[str, tuple[dict[str, Any], Any]] = {
    "strategy": ({"strategy": "dpsgd", "learners": 4}, "adpsgd"),
    "learners": ({"strategy": "adpsgd", "learners": 4}, 6),
    "super_learner": ({"strategy": "hadpsgd", "learners": 4}, 2),
    "among": ({"strategy": "hadpsgd", "learners": 4, "super_learner": 2}, "dpsgd"),
    "schedule": ({"strategy": "adpsgd", "learners": 4}, "pairwise"),
    "pace": ({"strategy": "adpsgd", "learners": 4}, 3),
    "max_staleness": ({"strategy": "adpsgd", "learners": 4}, 5),
    "wire": ({"strategy": "adpsgd", "learners": 4}, "int8"),
    "average_every": ({"strategy": "local", "learners": 4}, 3),
    "synchronous_epochs": ({"strategy": "local", "learners": 4}, 1.5),
    "launcher": ({"strategy": "adpsgd", "learners": 4}, "virtual"),
    "virtual": (
        {"strategy": "adpsgd", "learners": 4, "launcher": "virtual"},
        {"compute_seconds": 2.0},
    ),
    "outer_rate": ({"strategy": "diloco", "learners": 4}, 1.0),
    "outer_momentum": ({"strategy": "noloco", "learners": 4}, 0.2),
    "injected": ({"strategy": "adpsgd", "learners": 4}, {"drop": 0.5}),
}
INJECTED: dict[str, tuple[dict[str, Any], Any]] = {
    "slow_learners": ({}, {1: 3.0}),
    "spread": ({"deviation": 0.3}, "lognormal"),
    "deviation": ({"spread": "uniform"}, 0.4),
    "link_ms": ({}, 5.0),
    "link_mbit": ({}, 100.0),
    "slow_links": ({"link_mbit": 100.0}, {2: 4.0}),
    "drop": ({}, 0.25),
}
SGD: dict[str, Any] = {"momentum": 0.5, "nesterov": True, "weight_decay": 1e-4, "clip_norm": 5.0}


def contents(strategy: Strategy) -> tuple[object, ...]:
    return type(strategy), getattr(strategy, "__dict__", {})


def given(run: Run) -> tuple[object, ...]:
    """What the engine is built with."""
    return (
        contents(strategy_of(run, STEPS)),
        run.learners,
        run.shared_gradients,
        run.processes,
        run.virtual,
        run.schedule,
        injection_of(run, seed=7),
    )


@pytest.mark.parametrize("field", CHANGES)
def test_every_field_of_a_run_reaches_the_engine(field: str) -> None:
    run, other = CHANGES[field]
    assert given(Run(**run)) != given(Run(**{**run, field: other}))


@pytest.mark.parametrize("field", INJECTED)
def test_every_injected_trouble_reaches_the_engine(field: str) -> None:
    base, other = INJECTED[field]
    runs = [
        Run(strategy="adpsgd", learners=4, injected=Injected(**injected))
        for injected in (base, {**base, field: other})
    ]
    assert injection_of(runs[0], 7) != injection_of(runs[1], 7)
    assert injection_of(runs[1], 7) != injection_of(runs[1], 8)


def test_no_field_is_forgotten_here() -> None:
    own = {"name", "model", "seeds", *Settings.model_fields}  # test_runs.py has these
    own |= {"decode"}  # nothing of training: test_report_seconds.py, test_workflow.py
    own |= {"probe"}  # nothing of the engine: test_probe.py
    assert {*CHANGES, *own} == Run.model_fields.keys()
    assert INJECTED.keys() == Injected.model_fields.keys()
    assert SGD.keys() == {field.name for field in fields(Sgd)}


def test_a_strategy_gets_the_values_of_its_run() -> None:
    """Not only others: these."""
    run = Run(strategy="adpsgd", learners=4, pace=3, max_staleness=5)
    assert contents(strategy_of(run, STEPS)) == contents(
        create(Choice(strategy="adpsgd", pace=3, max_staleness=5))
    )
    run = Run(strategy="local", learners=4, average_every=3, synchronous_epochs=1.5)
    assert contents(strategy_of(run, STEPS)) == contents(
        create(Choice(strategy="local", every=3, synchronous_steps=15))
    )
    run = Run(strategy="hadpsgd", learners=4, super_learner=2, pace=2, max_staleness=9)
    assert contents(strategy_of(run, STEPS)) == contents(
        create(Choice(strategy="adpsgd", pace=2, max_staleness=9))
    )


def settings(training: dict[str, Any]) -> Settings:
    content = {"name": "x", "corpus": {"kind": "builtin"}, "training": training}
    return settings_of(check(content, "test"), "r").training


def test_the_optimiser_gets_the_values_of_the_run() -> None:
    """Those of all runs, and its own."""
    for field, value in SGD.items():
        common = settings({field: value, "runs": [{"name": "r"}]})
        own = settings({"runs": [{"name": "r", field: value}]})
        assert getattr(sgd_of(common), field) == getattr(sgd_of(own), field) == value
    assert sgd_of(settings({**SGD, "runs": [{"name": "r"}]})) == Sgd(**SGD)


@pytest.mark.parametrize(
    ("field", "value"),
    [("base", 0.2), ("base_batch", 128), ("warmup_epochs", 2.0), ("anneal_after", 3.0),
     ("anneal_factor", 0.5)],
)  # fmt: skip
def test_every_field_of_the_learning_rate_counts(field: str, value: float) -> None:
    base = {"warmup_epochs": 1.0, "anneal_after": 4.0}
    one, two = LearningRate(**base), LearningRate(**{**base, field: value})
    epochs = [e / 4 for e in range(28)]
    assert [rate(one, batch=512, epoch=e) for e in epochs] != [
        rate(two, batch=512, epoch=e) for e in epochs
    ]
    assert LearningRate.model_fields.keys() == {
        "base", "base_batch", "warmup_epochs", "anneal_after", "anneal_factor"
    }  # fmt: skip
