"""What learners tell each other about pauses and the end, and when the membership changes."""

from __future__ import annotations

import numpy as np
import pytest

from hadpsgd.decentralized.core.coordination import Coordination, horizon
from hadpsgd.decentralized.topology.schedules import SCHEDULES, create

RING = create("ring", learners=4, seed=0)
SMALLER = RING.over([0, 1, 2])


@pytest.mark.parametrize("what", ["pause", "stop"])
def test_what_was_reported_comes_at_once(what: str) -> None:
    coordination = Coordination(RING, 1)
    getattr(coordination, f"request_{what}")(5)
    pause, stop, finished = coordination.state()
    coordination.begin_anew(SMALLER, 8, pause=pause, stop=stop, finished=finished)
    assert coordination.pauses(8) and coordination.stops(8) == (what == "stop")


@pytest.mark.parametrize("what", ["pause", "stop"])
def test_what_is_asked_for_during_a_change_is_picked_after_it(what: str) -> None:
    """The gradients go on meanwhile: a signal may come, or the last step."""
    coordination = Coordination(RING, 1)
    report = coordination.state()
    getattr(coordination, f"request_{what}")(5)
    coordination.begin_anew(SMALLER, 8, pause=report[0], stop=report[1], finished=report[2])
    picked = horizon(SMALLER, source=1, first=8)
    assert picked > 8 and coordination.pauses(picked) and not coordination.pauses(8)
    assert coordination.stops(picked) == (what == "stop")
    assert coordination.urgent(8)


def test_who_finishes_during_a_change_tells_it_after_it() -> None:
    """Else the others would wait for ever: who has finished mixes only when there is news."""
    coordination = Coordination(RING, 1)
    report = coordination.state()
    coordination.finish(5)
    coordination.begin_anew(SMALLER, 8, pause=report[0], stop=report[1], finished=report[2])
    assert coordination.note(version=0, steps=0).finished == 0b0010
    assert coordination.urgent(8) and not coordination.urgent(horizon(SMALLER, source=1, first=8))


def test_all_living_have_finished_as_one_finishes_during_a_change() -> None:
    coordination = Coordination(RING, 1)
    report = coordination.state()
    coordination.finish(5)
    others = 0b0101
    coordination.begin_anew(SMALLER, 8, pause=False, stop=False, finished=report[2] | others)
    assert coordination.all_finished
    assert coordination.stops(horizon(SMALLER, source=1, first=8))


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_horizon_is_the_first_round_before_which_all_know(name: str) -> None:
    schedule = create(name, learners=9, seed=3)
    for source, first in ((0, 0), (4, 7)):
        knows = np.zeros(9)
        knows[source] = 1
        rounds = first
        while not knows.all():
            knows = knows @ (schedule.round(rounds).matrix() > 0)
            rounds += 1
        assert horizon(schedule, source=source, first=first) == rounds


@pytest.mark.parametrize("name", ["ring", "random-ring", "pairwise"])
@pytest.mark.parametrize(
    ("first", "second"), [((0, 2), (4, 2)), ((0, 2), (4, 3)), ((1, 5), (2, 4))]
)
def test_all_pause_before_the_same_round(
    name: str, first: tuple[int, int], second: tuple[int, int]
) -> None:
    """Two that know nothing of each other pick one: the earlier counts, for everybody."""
    schedule = create(name, learners=8, seed=1)
    nodes = [Coordination(schedule, node) for node in range(8)]
    paused: dict[int, list[int]] = {}
    for k in range(40):
        for node, round_ in (first, second):
            if round_ == k:
                nodes[node].request_pause(k)
        for node, coordination in enumerate(nodes):
            if coordination.pauses(k):
                paused.setdefault(k, []).append(node)
                coordination.passed()
        notes = [coordination.note(version=0, steps=k) for coordination in nodes]
        for node, coordination in enumerate(nodes):
            for partner in schedule.round(k).receives(node):
                coordination.heard(notes[partner], k + 1)
    picked = [horizon(schedule, source=node, first=round_) for node, round_ in (first, second)]
    assert paused == {min(picked): [*range(8)]}
