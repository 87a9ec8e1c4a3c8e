"""Differences between rows of the table, and how significant each is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tracking_data import (
    scored,
    write_results,
)

from hadpsgd.config import Config, run_key
from hadpsgd.errors import UserError
from hadpsgd.reports import (
    compare,
    differences,
    significance,
)
from hadpsgd.scoring import sentences
from hadpsgd.scoring.significance import mapsswe
from hadpsgd.scoring.significance_command import compare as compare_scored
from hadpsgd.tracking.results import read_results


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return write_results(tmp_path)


def test_differences() -> None:
    found = differences.differing({"a": {"x": "1", "y": "2"}, "b": {"x": "1", "z": "3"}})
    assert found == {"y": ["2", "-"], "z": ["-", "3"]}


def test_differences_have_their_significance(config: Config) -> None:
    """Signs, and agreement with the scorer's own comparison."""
    results = read_results(config)
    tests = significance.of_config(config, results)
    assert list(tests) == ["swb", "ch"] and len(tests["swb"]["pairs"]) == 3
    lines = significance.table([result.run.id for result in results], tests).rows
    value, low, high, p = map(float, re.findall(r"[-+.\d]+\d", lines[1][2]))
    assert value == pytest.approx(100 * (153 - 150) / 800, abs=0.006)
    assert low < value < high and 0 < p <= 1
    folders = [result.scored / "ch" for result in results[:3:2]]
    direct = mapsswe(*(sentences.read(folder) for folder in folders))
    assert p == pytest.approx(direct.p, abs=0.0006)


def test_differences_of_unlike_references_are_not_tested(config: Config) -> None:
    folder = Path(config.results) / "demo/score" / run_key(config, "ssgd-4") / "ch"
    sentences.write(folder / sentences.FILE, scored(10, 1, 0, 0)[:50])
    with pytest.raises(UserError, match="single and ssgd-4: the runs were scored on different"):
        significance.of_config(config, read_results(config))
    text = compare.page(compare.from_results(config, "demo"))
    assert "Differences are not tested: single and ssgd-4" in text


def test_the_note_says_what_was_drawn() -> None:
    few = {name: scored(20, 2, 0, 0)[:3] for name in ("a", "b")}
    many = {name: scored(200, 2, 0, 0) for name in ("a", "b")}
    by_sentence, by_speaker = compare_scored(few), compare_scored(many)
    assert "over sentences;" in significance.note({"swb": by_sentence})
    assert "over speakers;" in significance.note({"swb": by_speaker, "ch": by_speaker})
    both = significance.note({"swb": by_speaker, "ch": by_sentence})
    assert "over speakers (swb) and sentences (ch);" in both


def test_leaders_are_the_best_and_those_like_it() -> None:
    runs = {name: {"wer": wer} for name, wer in (("a", 6.0), ("b", 5.0), ("c", 5.5))}
    values = (("a", "b", 0.01), ("a", "c", 0.3), ("b", "c", 0.05))
    pairs = [{"first": one, "second": two, "p": p} for one, two, p in values]
    assert significance.leaders({"runs": runs, "pairs": pairs}) == {"b", "c"}
