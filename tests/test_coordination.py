"""What learners tell each other about pauses and the end, and when the membership changes."""

from __future__ import annotations

import pytest

from hadpsgd.decentralized.coordination import Coordination, horizon
from hadpsgd.decentralized.schedules import create

RING = create("ring", 4, 0)
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
    picked = horizon(SMALLER, 1, 8)
    assert picked > 8 and coordination.pauses(picked) and not coordination.pauses(8)
    assert coordination.stops(picked) == (what == "stop")
    assert coordination.urgent(8)


def test_who_finishes_during_a_change_tells_it_after_it() -> None:
    """Else the others would wait for ever: who has finished mixes only when there is news."""
    coordination = Coordination(RING, 1)
    report = coordination.state()
    coordination.finish(5)
    coordination.begin_anew(SMALLER, 8, pause=report[0], stop=report[1], finished=report[2])
    assert coordination.note(0, 0).finished == 0b0010
    assert coordination.urgent(8) and not coordination.urgent(horizon(SMALLER, 1, 8))


def test_all_living_have_finished_as_one_finishes_during_a_change() -> None:
    coordination = Coordination(RING, 1)
    report = coordination.state()
    coordination.finish(5)
    others = 0b0101
    coordination.begin_anew(SMALLER, 8, pause=False, stop=False, finished=report[2] | others)
    assert coordination.all_finished
    assert coordination.stops(horizon(SMALLER, 1, 8))
