"""Settings that each may be and together may not; what a run takes where it says nothing."""

from __future__ import annotations

from typing import Any

import pytest

from hadpsgd.config import check
from hadpsgd.config.schema import Config
from hadpsgd.config.training import Run
from hadpsgd.decentralized.strategies.registry import STRATEGIES
from hadpsgd.decentralized.topology.schedules import SCHEDULES
from hadpsgd.errors import UserError
from hadpsgd.training.engines import strategy_of


def config(**sections: Any) -> Config:
    return check({"name": "x", "corpus": {"kind": "builtin"}, **sections}, "test")


def of_run(**run: Any) -> dict[str, Any]:
    return {"training": {"batch": 240, "runs": [run]}}


def noise(**settings: Any) -> dict[str, Any]:
    """A config with a noisy copy."""
    return {"corpus": {"kind": "builtin", "noise": {"copies": 1, **settings}}}


FOUR: dict[str, Any] = {"learners": 4}
GROUPED = {"strategy": "hadpsgd", "learners": 4, "super_learner": 2}


@pytest.mark.parametrize(
    ("refused", "message", "fits"),
    [
        ({"features": {"input": ["ivector"]}}, "i-vectors need logmel or fmllr beside them",
         {"features": {"input": ["ivector", "logmel"]}}),
        ({"features": {"input": ["logmel", "logmel"]}}, "a stream is listed twice",
         {"features": {"input": ["logmel", "ivector"]}}),
        ({"features": {"input": ["fmllr"]}}, "fmllr needs alignment.kind sat",
         {"features": {"input": ["fmllr"]}, "alignment": {"kind": "sat"}}),
        ({"corpus": {"kind": "builtin", "speeds": [0.9]}}, "1.0 must be among the speeds",
         {"corpus": {"kind": "builtin", "speeds": [0.9, 1.0]}}),
        ({"corpus": {"kind": "builtin", "speeds": [1.0, 1.0]}}, "a speed is listed twice",
         {"corpus": {"kind": "builtin", "speeds": [1.0, 1.1]}}),
        ({"scoring": {"lm_weights": [9, 10, 9.0]}}, "lm_weights': 9 is listed twice",
         {"scoring": {"lm_weights": [9, 10]}}),
        ({"scoring": {"word_penalties": [0, -0.0]}}, "word_penalties': 0 is listed twice",
         {"scoring": {"word_penalties": [0, 0.5]}}),
        ({"lm": {"neural": {"weights": [0.5, 0.5]}}}, "weights': 0.5 is listed twice",
         {"lm": {"neural": {"weights": [0, 0.5]}}}),
        ({"corpus": {"kind": "builtin", "speeds": [1.0, 0.955]}}, "two decimals at most",
         {"corpus": {"kind": "builtin", "speeds": [1.0, 0.95]}}),
        # YAML's yes would be 1: a third of the utterances left out
        ({"egs": {"misfit": True}}, "misfit should be a number, not yes or no",
         {"egs": {"misfit": 1}}),
        ({"egs": {"tempos": [1, True]}}, "tempos should be a number",
         {"egs": {"tempos": [1, 1.1]}}),
        ({"egs": {"misfit": float("inf")}}, "should be a finite number", {"egs": {"misfit": 99}}),
        # what computes with them would end in an error of NumPy, or of memory
        ({"alignment": {"kind": "mono", "gaussians": 10**20}}, "gaussians should be at most",
         {"alignment": {"kind": "mono", "gaussians": 2**31 - 1}}),
        ({"scoring": {"lm_weights": [9, 10**400]}}, "lm_weights", {"scoring": {"lm_weights": [9]}}),
        ({"training": {"spec_augment": {"time_masks": 1, "time_width": 4},
                       "stages": [{"frames": 3}]}}, "the 3 frames of training.stages",
         {"training": {"spec_augment": {"time_masks": 1, "time_width": 4},
                       "stages": [{"frames": 4}]}}),
        ({"training": {"seeds": [1, 2]}, "decoding": {"ensembles": {"x" * 81: ["single"]}}},
         "too long for names of files: 80 at most",
         {"training": {"seeds": [1, 2]}, "decoding": {"ensembles": {"x" * 80: ["single"]}}}),
        ({"results": "a/{b}"}, "leave out { and }", {"results": "${HOME:-x}/a b"}),
        ({"results": ""}, "no folder that Snakemake can write to", {"results": "."}),
        ({"training": {"runs": [{"strategy": "ssgd", "learners": 4, "batch": 10**400}]}},
         "batch should be at most", {}),
        ({"scoring": {"lm_weights": [1e-300]}}, "greater than or equal to 0.01", {}),
        ({"scoring": {"word_penalties": [-1e300]}}, "greater than or equal to -1000", {}),
        ({"decoding": {"lattice_beam": 1e20}}, "less than or equal to 1000", {}),
        ({"seed": 10**20}, "seed should be at most 2147483647", {"seed": 2**31 - 1}),
        ({"lm": {"neural": {"cells": 10**6}}}, "should be less than or equal to 65536",
         {"lm": {"neural": {"cells": 65_536}}}),
        ({"training": {"threads": 10**6}}, "should be less than or equal to 4096",
         {"training": {"threads": 4096}}),
        # chosen among once all is trained and decoded
        ({"scoring": {"lm_weights": [9, 0]}}, "should be greater than or equal to 0.01",
         {"scoring": {"lm_weights": [9, 0.1]}}),
        ({"scoring": {"word_penalties": [float("nan")]}}, "should be a finite number",
         {"scoring": {"word_penalties": [-1.5]}}),
        ({"training": {"stages": [{"acoustic_scale": 1000}]}}, "less than or equal to 10",
         {"training": {"stages": [{"acoustic_scale": 1}]}}),
        (noise(snr=[9, 3]), "the lower end comes first", noise(snr=[3, 9])),
        (noise(sources=["babble", "babble"]), "a source is listed twice",
         noise(sources=["babble"])),
        (noise(sources=[], rooms=0, volume=[1, 1]), "such copies are no others",
         noise(sources=[], rooms=0, volume=[1, 2])),
        ({"lm": {"arpa": "x.gz", "order": 3}}, "order: lm.arpa is not trained here",
         {"lm": {"arpa": "x.gz", "order": 3, "sources": {"web": "web.txt"}}}),
        ({"lm": {"arpa": "x.gz", "tool": "lmplz"}}, "tool: lm.arpa is not trained here",
         {"lm": {"tool": "lmplz"}}),
        ({"lm": {"arpa": "x.gz", "cutoffs": [0, 1]}}, "cutoffs: lm.arpa is not trained here",
         {"lm": {"arpa": "x.gz", "cutoffs": [0, 1], "sources": {"web": "web.txt"}}}),
        ({"lm": {"spelling_order": 3}}, "spelling_order: nothing is spelled without lm.pieces",
         {"lm": {"spelling_order": 3, "pieces": 40}}),
        ({"graph": {"spelled_cost": 1.0}}, "graph.spelled_cost: nothing is spelled",
         {"graph": {"spelled_cost": 1.0}, "lm": {"pieces": 40}}),
        ({"graph": {"spelling_scale": 2.0}}, "graph.spelling_scale: nothing is spelled",
         {"graph": {"spelling_scale": 2.0}, "lm": {"pieces": 40}}),
        (of_run(strategy="single", learners=2), "strategy single has 1 learner",
         of_run(strategy="single", learners=1)),
        (of_run(strategy="ssgd", learners=1), "ssgd needs at least 2 learners",
         of_run(strategy="ssgd", learners=2)),
        (of_run(strategy="adpsgd", learners=4, super_learner=2), "adpsgd has no super-learners",
         of_run(**GROUPED)),
        (of_run(strategy="hadpsgd", learners=6, super_learner=4), "cannot be divided into",
         of_run(strategy="hadpsgd", learners=8, super_learner=4)),
        (of_run(strategy="hadpsgd", learners=4, super_learner=4), "that is strategy ssgd",
         of_run(**GROUPED)),
        (of_run(strategy="d1d", schedule="ring", **FOUR), "d1d averages all weights",
         of_run(strategy="d1d", schedule="complete", **FOUR)),
        (of_run(strategy="local", schedule="ring", **FOUR), "local averages all weights",
         of_run(strategy="local", schedule="complete", **FOUR)),
        (of_run(**GROUPED, among="d1d", schedule="ring"), "d1d averages all weights",
         of_run(**GROUPED, among="dpsgd", schedule="ring")),
        (of_run(strategy="rand", schedule="ring", **FOUR), "choose adpsgd",
         of_run(strategy="adpsgd", schedule="random-ring", **FOUR)),
        (of_run(strategy="adpsgd", schedule="exponential", **FOUR), "needs exchanges in both",
         of_run(strategy="dpsgd", schedule="exponential", **FOUR)),
        (of_run(**GROUPED, schedule="one-peer-exponential"), "needs exchanges in both",
         of_run(**GROUPED, among="dpsgd", schedule="one-peer-exponential")),
        (of_run(**GROUPED, schedule="random-partner"), "do not draw partners",
         of_run(**GROUPED, among="dpsgd", schedule="random-partner")),
        (of_run(strategy="adpsgd", schedule="random-partner", injected={"drop": 0.1}, **FOUR),
         "has no rounds", of_run(strategy="adpsgd", schedule="random-partner", **FOUR)),
        (of_run(strategy="d1d", injected={"drop": 0.1}, **FOUR), "no exchanges of two",
         of_run(strategy="dpsgd", injected={"drop": 0.1}, **FOUR)),
        (of_run(strategy="ssgd", injected={"drop": 0.1}, **FOUR), "no exchanges of two",
         of_run(strategy="ssgd", **FOUR)),
        (of_run(strategy="ddp", injected={"drop": 0.1}, **FOUR), "no exchanges of two",
         of_run(strategy="ddp", **FOUR)),
        (of_run(**GROUPED, among="local", injected={"drop": 0.1}), "no exchanges of two",
         of_run(**GROUPED, among="dpsgd", injected={"drop": 0.1})),
        (of_run(strategy="adpsgd", injected={"slow_learners": {4: 2.0}}, **FOUR), "no learner 4",
         of_run(strategy="adpsgd", injected={"slow_learners": {3: 2.0}}, **FOUR)),
        (of_run(strategy="adpsgd", injected={"slow_learners": {1: 0.5}}, **FOUR), "made faster",
         of_run(strategy="adpsgd", injected={"slow_learners": {1: 1.0}}, **FOUR)),
        (of_run(strategy="dpsgd", schedule="exponential", injected={"drop": 0.1}, **FOUR),
         "would shift the mean", of_run(strategy="dpsgd", injected={"drop": 0.1}, **FOUR)),
        (of_run(strategy="diloco", schedule="ring", **FOUR), "diloco averages all weights",
         of_run(strategy="noloco", schedule="ring", **FOUR)),
        (of_run(strategy="noloco", schedule="exponential", **FOUR), "moves both ends",
         of_run(strategy="sgp", schedule="exponential", **FOUR)),
        (of_run(strategy="noloco", outer_momentum=1.0, **FOUR), "less than 1",
         of_run(strategy="noloco", outer_momentum=0.0, **FOUR)),
        (of_run(strategy="dpsgd", schedule="one-peer-exponential", injected={"drop": 0.1}, **FOUR),
         "would shift the mean", of_run(strategy="sgp", injected={"drop": 0.1}, **FOUR)),
        (of_run(**GROUPED, among="local", synchronous_epochs=1), "for strategy local alone",
         of_run(strategy="local", synchronous_epochs=1, **FOUR)),
        ({"training": {"runs": [{"strategy": "ssgd", "learners": 3}]}}, "batch 256 cannot be",
         {"training": {"batch": 255, "runs": [{"strategy": "ssgd", "learners": 3}]}}),
        ({"tracking": {"uri": "some/folder"}}, "not a tracking URI",
         {"tracking": {"uri": "http://server:5000"}}),
        ({"tracking": {"uri": "sqlite://file.db"}}, "sqlite needs three slashes",
         {"tracking": {"uri": "sqlite:///file.db"}}),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_refused(
    refused: dict[str, Any], message: str, fits: dict[str, Any]
) -> None:
    with pytest.raises(UserError) as refusal:
        config(**refused)
    assert message in str(refusal.value) and "\n" not in str(refusal.value)
    config(**fits)  # its neighbour is none


@pytest.mark.parametrize(
    ("strategy", "grouped"),
    [
        ("rand", False),
        *((name, False) for name, kind in STRATEGIES.items() if kind.among_super_learners),
        *((name, True) for name, kind in STRATEGIES.items() if kind.among_super_learners),
    ],
)
def test_a_run_has_the_schedule_that_its_strategy_needs(strategy: str, grouped: bool) -> None:
    run = Run(**(GROUPED | {"among": strategy} if grouped else {"strategy": strategy, **FOUR}))
    wanted = {
        "rand": "random-ring", "d1d": "complete", "local": "complete", "diloco": "complete",
        "noloco": "random-partner", "sgp": "one-peer-exponential",
    }.get(strategy, "ring")  # fmt: skip
    assert run.schedule == wanted in SCHEDULES
    made = strategy_of(run, steps_per_epoch=10)
    assert made.collective == (run.schedule == "complete")
    assert made.name == strategy


def test_runs_are_named_by_what_makes_them_differ() -> None:
    runs = [
        {"strategy": "single"}, {"strategy": "ssgd", **FOUR}, {"strategy": "adpsgd", **FOUR},
        {"strategy": "adpsgd", "schedule": "pairwise", **FOUR}, {"strategy": "rand", **FOUR},
        GROUPED, {**GROUPED, "among": "d1d"}, {**GROUPED, "schedule": "complete"},
        {"strategy": "adpsgd", "name": "mine", **FOUR},
    ]  # fmt: skip
    ids = [run.id for run in config(training={"batch": 240, "runs": runs}).training.runs]
    assert ids == [
        "single", "ssgd-4", "adpsgd-4", "adpsgd-4-pairwise", "rand-4",
        "hadpsgd-2x2", "hadpsgd-2x2-d1d", "hadpsgd-2x2-complete", "mine",
    ]  # fmt: skip


@pytest.mark.parametrize("given", [True, "lstm", 1])
def test_a_section_that_is_no_section_is_told_so(given: object) -> None:
    """In the words of a config, without the names of classes."""
    with pytest.raises(UserError) as refused:
        config(lm={"neural": given})
    told = str(refused.value)
    assert f"'lm.neural' ({given!r}): give keys and values, or {{}} for the defaults" in told
