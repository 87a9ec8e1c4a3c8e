"""The registry of strategies."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from hadpsgd.config.training import SCHEDULES
from hadpsgd.decentralized.strategies import registry
from hadpsgd.decentralized.strategies.registry import STRATEGIES, Choice, Strategy, create
from hadpsgd.decentralized.topology.schedules import create as create_schedule
from hadpsgd.errors import UserError

LONGEST = 100
"""Lines of a strategy's file."""


@pytest.mark.parametrize("kind", STRATEGIES.values(), ids=list(STRATEGIES))
def test_a_strategy_is_one_short_file(kind: type[Strategy]) -> None:
    file = Path(inspect.getfile(kind))
    assert file.parent == Path(registry.__file__).parent
    assert len(file.read_text(encoding="utf-8").splitlines()) < LONGEST
    assert kind.summary and kind.summary != Strategy.__dict__.get("summary")


@pytest.mark.parametrize("kind", STRATEGIES.values(), ids=list(STRATEGIES))
def test_a_strategy_fits_the_schedule_that_it_takes_by_default(kind: type[Strategy]) -> None:
    assert kind.default_schedule in get_args(SCHEDULES)
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
