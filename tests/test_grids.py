"""Grids of runs: what they stand for, what they are called, what is refused."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hadpsgd.config import Config, check, run_key, settings_of
from hadpsgd.config.command import resolved
from hadpsgd.errors import UserError

VIRTUAL = {"launcher": "virtual", "learners": 4}


def config(*grids: dict[str, Any], **training: Any) -> Config:
    content = {"batch": 16, "runs": [{"strategy": "single"}], "grids": list(grids), **training}
    return check({"name": "x", "corpus": {"kind": "builtin"}, "training": content}, "test")


def test_a_grid_has_every_combination_and_is_trained_as_its_runs_written_out() -> None:
    grid = {"part": "batch", "run": VIRTUAL,
            "over": {"strategy": ["ssgd", "adpsgd"], "batch": [32, 64]}}  # fmt: skip
    made = config(grid)
    written = [
        {**VIRTUAL, "strategy": strategy, "batch": batch, "decode": False}
        for strategy, batch in itertools.product(["ssgd", "adpsgd"], [32, 64])
    ]
    same = config(runs=[{"strategy": "single"}, *written])
    assert [run.id for run in made.training.members] == [run.id for run in same.training.members]
    for run in made.training.members:
        assert run_key(made, run.id) == run_key(same, run.id)
        assert settings_of(made, run.id) == settings_of(same, run.id)
    assert made.training.parts()["batch"] == [run.id for run in same.training.members[1:]]


def test_a_run_of_two_grids_is_trained_once_and_the_common_value_is_not_in_its_name() -> None:
    made = config(
        {"part": "batch", "run": {"batch": 32}, "over": {"learning_rate.base": [0.1, 0.2]}},
        {"part": "learners", "over": {"batch": [16, 32]}},
    )
    assert [run.id for run in made.training.members] == [
        "single",
        "single-batch32",
        "single-batch32-lr0.2",
    ]
    assert made.training.parts() == {
        "batch": ["single-batch32", "single-batch32-lr0.2"],
        "learners": ["single", "single-batch32"],
        "stragglers": [],
        "tried": [],
        "why": [],
    }


def test_trouble_is_in_the_name() -> None:
    slow = {"injected.slow_learners": [{}, {1: 5}], "injected.spread": ["none", "exponential"]}
    made = config({"part": "stragglers", "run": {**VIRTUAL, "strategy": "adpsgd"}, "over": slow})
    assert [run.id for run in made.training.members][1:] == [
        "adpsgd-4-virtual",
        "adpsgd-4-virtual-spread-exponential",
        "adpsgd-4-virtual-slow5",
        "adpsgd-4-virtual-slow5-spread-exponential",
    ]
    assert settings_of(made, "adpsgd-4-virtual-slow5").run.injected.slow_learners == {1: 5.0}


def test_seeds_and_decoding() -> None:
    grid = {"part": "batch", "over": {"batch": [32, 64]}}
    decoded = {"part": "learners", "run": {"batch": 64, "decode": True}}
    made = config(grid, decoded, seeds=[1, 2])
    assert [run.id for run in made.training.members if run.decode] == [
        *("single-s1", "single-s2", "single-batch64-s1", "single-batch64-s2")
    ]
    assert len(made.training.members) == 6


def test_a_run_of_which_one_grid_wants_more_is_trained_once_and_gives_it() -> None:
    """Decoded for one, probed for another: one run, whichever comes first."""
    over = {"strategy": ["ssgd", "adpsgd"], "batch": [32, 64]}
    grids: list[dict[str, Any]] = [
        {"part": "batch", "run": VIRTUAL, "over": over},
        {"part": "why", "run": {**VIRTUAL, "probe": True}, "over": {**over, "batch": [64]}},
        {"part": "learners", "run": {**VIRTUAL, "strategy": "ssgd", "batch": 64, "decode": True}},
    ]
    for ordered in (grids, grids[::-1]):
        made = config(*ordered, seeds=[1, 2])
        assert len(made.training.members) == 2 * 5
        wanted = {row: (runs[0].decode, runs[0].probe) for row, runs in made.training.rows.items()}
        assert wanted == {
            "single": (True, False),
            "ssgd-4-virtual-batch32": (False, False),
            "ssgd-4-virtual-batch64": (True, True),
            "adpsgd-4-virtual-batch32": (False, False),
            "adpsgd-4-virtual-batch64": (False, True),
        }
        again = check(yaml.safe_load(resolved(made)), "resolved")
        assert again.training.rows == made.training.rows


@pytest.mark.parametrize(
    ("grid", "told"),
    [
        ({"part": "batch", "over": {"bach": [1]}}, "grids, batch, bach 1: bach Extra"),
        ({"part": "batch", "run": {"learners": 2}}, "strategy single has 1 learner"),
        ({"part": "speed"}, "training.grids.0.part"),
        ({"part": "batch", "run": {"learners": 3, "strategy": "ssgd"}}, "batch 16 cannot be"),
        ({"part": "batch", "run": {"name": "a"}, "over": {"batch": [1, 2]}}, "two runs have"),
    ],
)
def test_what_is_no_run_is_refused(grid: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        config(grid)


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.sampled_from([16, 32, 48, 64]), min_size=1, max_size=3, unique=True),
    st.lists(st.sampled_from(["ssgd", "adpsgd", "rand"]), min_size=1, max_size=3, unique=True),
    st.lists(st.sampled_from([{}, {0: 2.0}, {1: 3.0}]), max_size=2, unique_by=str),
)
def test_a_resolved_config_has_the_same_runs(
    batches: list[int], strategies: list[str], slow: list[dict[int, float]]
) -> None:
    over: dict[str, list[Any]] = {"batch": batches, "strategy": strategies}
    over |= {"injected.slow_learners": slow} if slow else {}
    made = config({"part": "batch", "run": VIRTUAL, "over": over})
    assert len(made.training.members) == 1 + len(batches) * len(strategies) * max(1, len(slow))
    again = check(yaml.safe_load(resolved(made)), "resolved")
    keys = [[run_key(each, run.id) for run in each.training.members] for each in (made, again)]
    assert keys[0] == keys[1]


def test_a_copy_with_other_runs_has_other_members() -> None:
    """`rerun` makes such copies; members are computed once a config."""
    before = config({"part": "batch", "over": {"batch": [16, 32]}}).training
    assert before.by_id[before.members[0].id] is before.members[0]
    copied = before.model_copy(update={"grids": [], "seeds": [1, 2]})
    assert [run.id for run in copied.members] == ["single-s1", "single-s2"]
    assert list(copied.by_id) == ["single-s1", "single-s2"]
