"""Partners drawn at random, in processes: replayed to the same bits, going on after a death."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from crews import Crew, Plan, check, check_bits, records, replayed

from hadpsgd.decentralized.core.events import Mix

SECONDS = 180.0


@contextmanager
def crew(plan: Plan) -> Iterator[Crew]:
    """All learners of a plan, started."""
    made = Crew(plan)
    try:
        for rank in range(plan.learners):
            made.start(rank)
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("learners", [4, 5])
def test_replay_gives_the_same_bits(tmp_path: Path, learners: int) -> None:
    plan = Plan(tmp_path, learners=learners, schedule="random-partner", steps=30, pause_every=10)
    with crew(plan) as running:
        results = running.results(SECONDS)
    assert len(results) == learners
    check(plan, results)
    assert all(done.steps == plan.steps for done in results.values())
    found = records(plan)
    assert all(sum(isinstance(e, Mix) for e in events) > 5 for events in found.values())
    check_bits(results, replayed(plan)[0])


def test_the_others_go_on_without_one_that_dies(tmp_path: Path) -> None:
    plan = Plan(tmp_path, learners=4, schedule="random-partner", steps=150)
    with crew(plan) as running:
        running.under_way()
        running.kill(1)
        results = running.results(SECONDS)
    assert results.keys() == {0, 2, 3}
    check(plan, results)
    for done in results.values():
        assert done.alive == (0, 2, 3)
        assert done.steps == plan.steps
