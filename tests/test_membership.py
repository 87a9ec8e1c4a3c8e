"""Changes of the membership, node by node, in one process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import pytest
import torch.distributed as dist

from hadpsgd.decentralized.core.engine import ExcludedError
from hadpsgd.decentralized.elastic import change
from hadpsgd.decentralized.elastic.decision import Decision, Newcomer, Report
from hadpsgd.decentralized.elastic.membership import Membership, TooLateError
from hadpsgd.decentralized.topology.schedules import create


@pytest.fixture
def store() -> dist.Store:
    return dist.HashStore()


def view(store: dist.Store, node: int, dead: Iterable[int] = ()) -> Membership:
    """What one of five nodes knows; `dead` do not listen."""
    return Membership(
        store, create("ring", learners=5, seed=0), node, lambda n: n not in dead, seconds=20
    )


def reports_only(store: dist.Store, node: int, report: Report) -> None:
    """What `Membership.change` does first; whoever dies then never decides."""
    part = dist.PrefixStore("members/1", store)
    part.set(f"report/{node}", json.dumps(asdict(report)))
    part.set("proposed", "yes")


def together(*calls: Callable[[], Decision]) -> list[Decision]:
    """What they return, called at the same time."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(120) for future in [pool.submit(call) for call in calls]]


def changes(store: dist.Store, nodes: Iterable[int], dead: Iterable[int]) -> list[Decision]:
    """Nodes that take part in a change, each in a thread of its own."""
    views = [view(store, node, dead) for node in nodes]
    return together(*(lambda m=m: m.change(Report(round=7), lost=dead) for m in views))


@pytest.mark.parametrize("dead", [(0,), (0, 1), (2,), (4,)])
def test_who_reports_only_keeps_nobody_waiting(
    store: dist.Store, dead: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lowest node is the one that the others wait for: it may die before it decides."""
    monkeypatch.setattr(change, "PATIENCE_SECONDS", 0.1)
    for node in dead:
        reports_only(store, node, Report(round=7, exchanging=True, holds=(1, 4)))
    living = [node for node in range(5) if node not in dead]
    decisions = changes(store, living, dead)
    assert len({decision.to_json() for decision in decisions}) == 1
    # it may still count as a member where it was not waited for; the next change tells
    assert set(living) <= set(decisions[0].alive)
    assert 0 not in decisions[0].alive or 0 not in dead


def test_a_newcomer_gets_in_though_its_former_self_has_reported(store: dist.Store) -> None:
    """Nobody looks whether node 0 lives: the newcomer alone knows that it is dead."""
    reports_only(store, 0, Report(round=7))
    views = [view(store, node) for node in range(1, 5)]
    changing = [lambda m=m: m.change(Report(round=7)) for m in views]
    *_, joined = together(*changing, lambda: view(store, 0).join(20))
    assert joined.alive == (0, 1, 2, 3, 4)
    assert joined.sources == {0: 1}
    assert sorted(joined.reports) == [1, 2, 3, 4]


def test_who_reports_is_not_given_up_for_a_broken_connection(store: dist.Store) -> None:
    reports_only(store, 3, Report(round=7))  # not dead at all: it listens
    views = [view(store, node) for node in (0, 1, 2, 4)]
    decisions = together(*(lambda m=m: m.change(Report(round=7), lost=[3]) for m in views))
    assert {decision.alive for decision in decisions} == {(0, 1, 2, 3, 4)}


def test_who_lives_and_reports_late_is_waited_for(
    store: dist.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection broke, and it has not noticed so soon as the others."""
    monkeypatch.setattr(change, "PATIENCE_SECONDS", 0.05)
    views = [view(store, node) for node in (0, 1, 2, 4)]
    late = view(store, 3)

    def report() -> Decision:
        time.sleep(0.3)
        return late.change(Report(round=7))

    changing = [lambda m=m: m.change(Report(round=7), lost=[3]) for m in views]
    decisions = together(*changing, report)
    assert {decision.alive for decision in decisions} == {(0, 1, 2, 3, 4)}


@pytest.mark.parametrize("lost", [0, 3])
def test_who_lives_but_lost_its_partners_is_waited_for_a_while(
    store: dist.Store, lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped: its port answers. Who only is silent would be waited for far longer."""
    monkeypatch.setattr(change, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(change, "GRACE_SECONDS", 0.2)
    others = [node for node in range(5) if node != lost]
    ring = create("ring", learners=5, seed=0)
    views = [Membership(store, ring, node, lambda _: True, seconds=1e4) for node in others]
    decisions = together(*(lambda m=m: m.change(Report(round=7), lost=[lost]) for m in views))
    assert {decision.alive for decision in decisions} == {tuple(others)}


def test_who_was_given_up_is_told(store: dist.Store) -> None:
    changes(store, [0, 1, 2, 4], dead=[3])
    with pytest.raises(ExcludedError, match="took learner 3 for dead"):
        view(store, 3).change(Report(round=6))


def test_who_comes_after_the_end_is_told(store: dist.Store) -> None:
    view(store, 1).end(Report(round=9, stop=True))
    with pytest.raises(TooLateError, match="the others ended before learner 0 joined them"):
        view(store, 0).join(20)


def test_a_round_counts_with_those_who_ended_after_it(store: dist.Store) -> None:
    """Node 0 has round 7 behind it and is gone; node 1 was broken off in the middle of it."""
    view(store, 0, [0]).end(Report(round=8, stop=True))
    views = [view(store, node, [0]) for node in range(1, 5)]
    broken = Report(round=7, exchanging=True, holds=(0, 2))
    reports = [broken, Report(round=7), Report(round=8), Report(round=8)]
    decision, *_ = together(
        *(lambda m=m, r=r: m.change(r) for m, r in zip(views, reports, strict=True))
    )
    assert decision.alive == (1, 2, 3, 4) and decision.round == 8
    assert decision.settled(1) == [0]


def test_who_listens_but_never_reports_is_given_up(
    store: dist.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A learner that hangs: its port answers, its thread does not."""
    monkeypatch.setattr(change, "PATIENCE_SECONDS", 0.05)
    ring = create("ring", learners=5, seed=0)
    views = [Membership(store, ring, node, lambda _: True, seconds=0.5) for node in (0, 1, 2, 4)]
    decisions = together(*(lambda m=m: m.change(Report(round=7)) for m in views))
    assert {decision.alive for decision in decisions} == {(0, 1, 2, 4)}
    with pytest.raises(ExcludedError):
        view(store, 3).change(Report(round=7))


def test_who_hangs_before_it_decides_is_given_up(
    store: dist.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change, "PATIENCE_SECONDS", 0.05)
    reports_only(store, 0, Report(round=7))  # the lowest: the decision is its to make
    ring = create("ring", learners=5, seed=0)
    views = [Membership(store, ring, node, lambda _: True, seconds=0.5) for node in range(1, 5)]
    decisions = together(*(lambda m=m: m.change(Report(round=7)) for m in views))
    assert {decision.alive for decision in decisions} == {(1, 2, 3, 4)}


@pytest.mark.parametrize(
    ("reports", "round_"),
    [
        ([Report(round=7, exchanging=True)] * 5, 8),  # all in the middle of it: it has been
        ([Report(round=7)] * 5, 7),
        ([Report(round=7, exchanging=True), *[Report(round=7)] * 4], 8),
        ([Report(round=8), *[Report(round=7, exchanging=True)] * 4], 8),
        ([Report(round=9, exchanging=True), Report(round=8), *[Report(round=9)] * 3], 10),
    ],
)
def test_no_round_is_done_twice(store: dist.Store, reports: list[Report], round_: int) -> None:
    """All go on with the first round that nobody has begun: some of it may be mixed in already."""
    views = [view(store, node) for node in range(5)]
    decisions = together(
        *(lambda m=m, r=r: m.change(r) for m, r in zip(views, reports, strict=True))
    )
    assert {decision.round for decision in decisions} == {round_}


def members(store: dist.Store, nodes: Iterable[int], dead: Iterable[int] = ()) -> list[Membership]:
    """What the ranks of some of four super-learners of two know; `dead` ranks do not listen."""
    base = create("ring", learners=4, seed=0)
    return [
        Membership(store, base, rank, lambda r: r not in dead, seconds=60, size=2)
        for node in nodes
        for rank in (2 * node, 2 * node + 1)
    ]


def test_a_super_learner_leaves_as_a_whole(store: dist.Store) -> None:
    """Rank 3 is dead: rank 2 is told to end, and may have reported or not."""
    colleague = members(store, [1], [3])[0]
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(colleague.change, Report(round=7), [3])
        rest = members(store, [0, 2, 3], [3])
        decisions = together(*(lambda m=m: m.change(Report(round=7)) for m in rest))
        assert {decision.alive for decision in decisions} == {(0, 2, 3)}
        with pytest.raises(ExcludedError, match="took super-learner 1 for dead"):
            told.result(60)


def test_a_round_counts_if_all_members_of_both_have_it() -> None:
    """Of nodes 0 and 1 all four hold the other's shard, of 0 and 3 one of them does not."""
    held = [(1, 3), (1,), (0, 2), (0, 2), (1, 3), (1, 3), (0, 2), (0, 2)]
    reports = {
        rank: Report(round=7, exchanging=True, holds=holds) for rank, holds in enumerate(held)
    }
    decision = Decision(1, (0, 1, 2, 3), 8, reports=reports, size=2)
    assert [decision.settled(rank) for rank in range(8)] == [
        *([1], [1], [0, 2], [0, 2]),
        *([1, 3], [1, 3], [2], [2]),
    ]


def test_who_has_all_shards_of_a_mix_has_done_the_round() -> None:
    """Rank 0 has; rank 1 was broken off while it gathered them, and holds what they are made of."""
    reports = {0: Report(round=8), 1: Report(round=7, exchanging=True, holds=(1,))}
    reports |= {2: Report(round=7, exchanging=True, holds=(0,)), 3: Report(round=8)}
    assert [Decision(1, (0, 1), 8, reports=reports, size=2).settled(r) for r in (1, 2)] == [
        [1],
        [0],
    ]


def test_all_members_apply_what_one_has_decided_on() -> None:
    reports = {rank: Report(round=7, steps=steps) for rank, steps in enumerate((5, 6, 9, 9))}
    decision = Decision(1, (0, 1), 7, reports=reports, size=2)
    assert (decision.steps(0), decision.steps(1)) == (6, 9)


def test_members_join_in_one_decision_and_one_life(store: dist.Store) -> None:
    """Its second life: the decision that let the first one in is not theirs."""
    everybody = members(store, range(4))
    for life in (1, 2):
        others = [view for view in everybody if view.node != 2]
        changing = [lambda m=m: m.change(Report(round=7)) for m in others]
        told = Newcomer(life=life, steps=30 + life, version=50)
        joining = [lambda m=m, t=told: m.join(60, t) for m in members(store, [2])]
        decisions = together(*changing, *joining)
        assert {decision.epoch for decision in decisions} == {life}
        assert all(decision.alive == (0, 1, 2, 3) for decision in decisions)
        assert all(decision.newcomers == {2: told} for decision in decisions)
        assert all(decision.sources == {2: 3} for decision in decisions)


@pytest.mark.parametrize("answers", [(True, True), (True, False)])
def test_newcomers_join_when_all_of_them_have_the_weights(
    answers: tuple[bool, bool], store: dist.Store
) -> None:
    asked = zip(members(store, [1]), answers, strict=True)
    with ThreadPoolExecutor(2) as pool:
        said = [pool.submit(view.all_have_it, mine, seconds=60) for view, mine in asked]
        assert [future.result(60) for future in said] == [all(answers)] * 2
