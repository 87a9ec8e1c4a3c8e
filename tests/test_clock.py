"""The virtual clock: order, determinism, waiting, ends; and the times of learners and links."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hadpsgd.decentralized.network.speeds import ComputeTimes, Links, LinkTimes
from hadpsgd.decentralized.simulated.clock import DeadlockError, VirtualClock
from hadpsgd.errors import UserError

Log = list[tuple[float, str]]


def test_sleepers_wake_in_the_order_of_their_moments() -> None:
    clock, log = VirtualClock(), Log()

    def sleeper(name: str, naps: list[float]) -> None:
        for nap in naps:
            clock.sleep(nap)
            log.append((clock.now(), name))

    clock.spawn(sleeper, "a", [3, 1])
    clock.spawn(sleeper, "b", [1, 1, 1, 1.5])
    assert clock.run() == 4.5
    assert log == [(1, "b"), (2, "b"), (3, "a"), (3, "b"), (4, "a"), (4.5, "b")]


@given(st.lists(st.lists(st.integers(0, 5), max_size=6), min_size=1, max_size=8))
def test_the_clock_is_a_sorted_merge(naps: list[list[int]]) -> None:
    def execute() -> list[tuple[float, int, int]]:
        clock, log = VirtualClock(), []

        def sleeper(me: int) -> None:
            for n, nap in enumerate(naps[me]):
                clock.sleep(nap)
                log.append((clock.now(), me, n))

        for me in range(len(naps)):
            clock.spawn(sleeper, me)
        assert clock.run() == max(map(sum, naps))
        return log

    log = execute()
    moments = {
        (me, n): sum(naps[me][: n + 1]) for me in range(len(naps)) for n in range(len(naps[me]))
    }
    assert {(me, n): t for t, me, n in log} == moments
    assert [t for t, _, _ in log] == sorted(t for t, _, _ in log)
    assert execute() == log


def test_one_task_runs_at_a_time_and_none_stays_behind() -> None:
    clock, inside, most, before = VirtualClock(), [0], [0], threading.active_count()

    def busy(me: int) -> None:
        for _ in range(20):
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            sum(range(2000))
            inside[0] -= 1
            clock.sleep(0.001 * (me % 3))

    for me in range(64):
        clock.spawn(busy, me)
    clock.run()
    assert most == [1]
    assert threading.active_count() == before


def test_condition_wakes_all_who_wait_and_times_out() -> None:
    clock, log = VirtualClock(), Log()
    door = clock.condition("the door")
    is_open = [False]

    def guest(name: str, patience: float | None) -> None:
        entered = door.wait_for(lambda: is_open[0], patience)
        log.append((clock.now(), f"{name} {entered}"))

    def porter() -> None:
        clock.sleep(2)
        door.notify_all()  # for nothing: the door is still shut
        clock.sleep(3)
        is_open[0] = True
        with door:
            door.notify_all()

    for name, patience in (("patient", None), ("hasty", 4.0), ("exact", 5.0), ("calm", 9.0)):
        clock.spawn(guest, name, patience)
    clock.spawn(porter)
    clock.run()
    assert log[0] == (4, "hasty False")
    # at equal moments, who asked first comes first: "exact" was due before the door opened
    assert log[1:] == [(5, "exact False"), (5, "patient True"), (5, "calm True")]


def test_join_waits_for_a_task_and_daemons_end_with_the_rest() -> None:
    clock, log = VirtualClock(), Log()

    def child() -> None:
        clock.sleep(2)

    def forever() -> None:
        try:
            while True:
                clock.sleep(0.5)
        finally:
            log.append((clock.now(), "daemon unwound"))

    def parent() -> None:
        clock.spawn(forever, daemon=True)
        task = clock.spawn(child)
        assert not task.join(timeout=1)
        assert task.join()
        assert task.join()
        log.append((clock.now(), "joined"))

    clock.spawn(parent)
    assert clock.run() == 2
    assert log == [(2, "joined"), (2, "daemon unwound")]


def test_a_run_can_stop_at_a_moment() -> None:
    clock, log = VirtualClock(), Log()

    def ticking() -> None:
        while True:
            clock.sleep(1)
            log.append((clock.now(), "tick"))

    clock.spawn(ticking)
    assert clock.run(until=3.5) == 3.5
    assert [moment for moment, _ in log] == [1, 2, 3]


def test_calls_come_at_their_moment() -> None:
    clock, log = VirtualClock(), Log()
    bell = clock.condition("the bell")

    def sleeper() -> None:
        clock.after(2, bell.notify_all)
        clock.after(1, lambda: log.append((clock.now(), "call")))
        bell.wait()
        log.append((clock.now(), "bell"))

    clock.spawn(sleeper)
    clock.run()
    assert log == [(1, "call"), (2, "bell")]


def test_a_deadlock_is_named() -> None:
    clock = VirtualClock()
    bell = clock.condition("a bell")
    clock.spawn(bell.wait, name="learner 3")
    clock.spawn(clock.sleep, 1)
    with pytest.raises(DeadlockError, match="learner 3 waits for a bell"):
        clock.run()


def test_an_error_in_a_task_ends_the_run() -> None:
    clock, before = VirtualClock(), threading.active_count()

    def faulty() -> None:
        clock.sleep(1)
        raise ZeroDivisionError("in a task")

    clock.spawn(clock.condition().wait)
    clock.spawn(faulty)
    with pytest.raises(ZeroDivisionError, match="in a task"):
        clock.run()
    assert clock.now() == 1
    assert threading.active_count() == before


@pytest.mark.parametrize("alone", [True, False])
def test_an_error_in_a_call_ends_the_run(alone: bool) -> None:
    clock = VirtualClock()

    def caller() -> None:
        clock.after(1, lambda: 1 / 0)
        if not alone:
            clock.sleep(2)

    clock.spawn(caller)
    clock.spawn(clock.sleep, 3)
    with pytest.raises(ZeroDivisionError):
        clock.run()


def test_strangers_and_nonsense_are_refused() -> None:
    clock = VirtualClock()
    with pytest.raises(RuntimeError, match="only a task"):
        clock.sleep(1)
    clock.spawn(clock.sleep, -1)
    with pytest.raises(ValueError, match="cannot sleep -1"):
        clock.run()


@pytest.mark.parametrize(
    ("spread", "deviation", "expected"),
    [("none", 0.0, 0.0), ("uniform", 0.3, 0.3), ("lognormal", 0.5, 0.5), ("exponential", 0, 1.0)],
)
def test_compute_times_have_the_mean_and_deviation_asked_for(
    spread: str, deviation: float, expected: float
) -> None:
    times = ComputeTimes(seconds=2.0, factors={1: 5.0}, spread=spread, deviation=deviation, seed=3)  # type: ignore[arg-type]
    drawn = np.array(
        [[times.at(learner=learner, step=step) for step in range(4000)] for learner in (0, 1)]
    )
    tolerance = 5 * expected / math.sqrt(4000)
    np.testing.assert_allclose(drawn.mean(1) / [2, 10], 1, atol=tolerance)
    np.testing.assert_allclose(drawn.std(1) / [2, 10], expected, atol=5 * tolerance)
    assert (drawn > 0).all()
    assert times.at(learner=1, step=7) == drawn[1, 7]
    if spread != "none":
        assert abs(np.corrcoef(drawn)[0, 1]) < 0.1


def test_a_link_carries_one_message_at_a_time_each_way() -> None:
    links = Links(LinkTimes(latency=0.25, bandwidth=100, factors={3: 4}))
    assert links.arrival(now=0, source=0, target=1, size=100) == 1.25
    assert links.arrival(now=0, source=0, target=2, size=100) == 2.25  # after the first
    assert (
        links.arrival(now=0, source=1, target=0, size=100) == 1.25
    )  # the other way at the same time
    assert (
        links.arrival(now=0, source=2, target=1, size=100) == 2.25
    )  # learner 1 was busy receiving
    assert links.arrival(now=5, source=0, target=3, size=100) == 9.25  # a slow receiver
    assert links.arrival(now=5, source=0, target=1, size=100) == 7.25  # does not hold up the sender
    assert links.arrival(now=9, source=3, target=1, size=100) == 13.25  # a slow sender
    assert links.bytes_sent == {0: 400, 1: 100, 2: 100, 3: 100}


def test_a_short_message_waits_for_what_lies_in_the_queue_alone() -> None:
    links = Links(LinkTimes(latency=0.25, bandwidth=100, factors={3: 4}, queue=0.5))
    assert links.told(now=0, source=0, target=1) == 0.25
    links.arrival(now=0, source=0, target=3, size=100)  # 1 s to send, 4 s to receive
    assert links.told(now=0, source=0, target=1) == 0.75
    assert links.told(now=0.75, source=0, target=1) == 1.25  # the rest of the snapshot
    assert links.told(now=2, source=0, target=1) == 2.25
    assert links.told(now=2, source=1, target=3) == 2.75
    assert links.told(now=2, source=3, target=1) == 2.25  # the other way
    links.arrival(now=10, source=3, target=2, size=100)  # the slow one sends: 2 has room
    assert links.told(now=11, source=1, target=2) == 11.25


def test_allreduce_time() -> None:
    times = LinkTimes(latency=0.01, bandwidth=1000, factors={2: 3})
    assert times.allreduce([0, 1], 1000) == pytest.approx(2 * (0.01 + 0.5))
    assert times.allreduce(range(4), 1000) == pytest.approx(6 * (0.01 + 0.75))
    assert times.allreduce([5], 1000) == 0


def test_times_refuse_nonsense() -> None:
    for bad in (
        lambda: ComputeTimes(seconds=0),
        lambda: ComputeTimes(seconds=1, factors={0: -1}),
        lambda: ComputeTimes(seconds=1, spread="normal"),  # type: ignore[arg-type]
        lambda: ComputeTimes(seconds=1, spread="uniform", deviation=0.7),
        lambda: LinkTimes(latency=-1),
        lambda: LinkTimes(bandwidth=0),
        lambda: LinkTimes(factors={0: 0}),
    ):
        with pytest.raises(UserError):
            bad()


def test_a_killed_task_does_nothing_more() -> None:
    clock = VirtualClock()
    done: list[str] = []

    def dies(name: str) -> None:
        try:
            clock.sleep(2)
            done.append(name)
        finally:
            done.append(f"{name} unwound at {clock.now():g}")
            clock.sleep(1)  # cannot wait any more
            done.append("never")

    def kills() -> None:
        clock.sleep(1)
        clock.kill(victim)
        assert not victim.done
        clock.sleep(5)
        clock.kill(victim)  # dead already

    victim = clock.spawn(dies, "victim")
    clock.spawn(dies, "other")
    clock.spawn(kills)
    assert clock.run() == 6
    assert done == ["victim unwound at 1", "other", "other unwound at 2", "never"]
