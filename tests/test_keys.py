"""Keys of stages: which key of the config decides which of them, and what they are.

`python tests/test_keys.py` writes the golden files anew; look at the difference.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from schema_leaves import CONFIGS, Leaf, changed, content, different, keys, leaves, named, values
from stand_in import StandIn

from hadpsgd.config import Config, check
from hadpsgd.config.command import resolved

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests/golden/keys.txt"
"""For each key of the schema, the stages whose key changes with it."""
VALUES = ROOT / "tests/golden/key_values.txt"
"""The keys of some configs."""
CHANGELOG = ROOT / "CHANGELOG.md"

OTHER_SECTIONS = {"corpus.kind", "alignment.kind", "site", "training.stages.[].criterion"}
"""Another kind is another section, with keys of its own; a site may lie in a file; there is one
criterion."""
LEAVES = leaves()
BASES = {name: content(name) for name in CONFIGS}
CHECKED = {name: check(base, name) for name, base in BASES.items()}
KEYS = {name: keys(config) for name, config in CHECKED.items()}


def candidates(node: Any, now: Any) -> Iterator[Any]:
    """Other values of a key, one of which should be valid."""
    for kind in node.get("anyOf", ()):
        yield from candidates(kind, now)
    yield from node.get("enum", ())
    match node.get("type"):
        case "boolean":
            yield not now
        case "integer":
            yield from (7 if now is None else now + 1, 2 * (now or 1), 1, 2, 4, 16000)
        case "number":
            yield from (now * 0.9 if isinstance(now, float) else 0.5, 0.05, 0.5, 2.0)
        case "string":
            yield from ("another", "sqlite:///another.db", "two-s1")
        case "array":
            yield from (["another"], [0.95, 1.0], [3, 4], [0, 1], ["logmel"])
            yield [*(now if isinstance(now, list) else []), {"name": "another"}]
            yield []
        case "object":
            yield from (
                {**(now if isinstance(now, dict) else {}), "another": "another"},
                {"0": 2.0},
                {"default": 0.3},
                {"another": ["two"]},
                {},
            )
    yield None


def value_at(base: dict[str, Any], leaf: Leaf) -> Any:
    inner: Any = base
    for step in leaf.path:
        try:
            inner = inner[named(inner, step)]
        except (KeyError, IndexError, TypeError):
            return None
    return inner


def one_change(name: str, leaf: Leaf) -> dict[str, str] | None:
    """The keys with another value of that key, one that some stage reads if there is any."""
    base, last = BASES[name], None
    for value in candidates(leaf.node, value_at(base, leaf)):
        other = changed(base, leaf, value)
        if other is not None and other != CHECKED[name]:
            last = keys(other)
            if last != KEYS[name]:
                break
    return last


def decided(leaf: Leaf) -> set[str]:
    """Stages whose key changes with a key of the config, in any of `CONFIGS`."""
    found: set[str] = set()
    others = {name: one_change(name, leaf) for name in BASES}
    assert any(others.values()), f"{leaf.name}: give `candidates` or `CONFIGS` a valid other value"
    for name, other in others.items():
        if other is not None:
            found |= different(KEYS[name], other)
    return {"runs" if stage.startswith("run ") else stage for stage in found}


def table() -> str:
    rows = {name: decided(leaf) for name, leaf in LEAVES.items() if name not in OTHER_SECTIONS}
    shown = (f"{name}: {', '.join(sorted(found)) or 'nothing'}" for name, found in rows.items())
    return "".join(f"{line}\n" for line in shown)


def key_values() -> str:
    rows = (f"{name} {stage} {key}" for name, all_ in KEYS.items() for stage, key in all_.items())
    return "".join(f"{row}\n" for row in rows)


def fingerprint_of(text: str) -> str:
    """What the changelog names."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def test_which_key_decides_what() -> None:
    assert table().splitlines() == GOLDEN.read_text().splitlines()


def test_keys_change_only_with_a_line_in_the_changelog() -> None:
    """Whoever upgrades reads there that all is made again."""
    assert key_values().splitlines() == VALUES.read_text().splitlines()
    named = f"keys {fingerprint_of(VALUES.read_text())}"
    assert named in CHANGELOG.read_text(), f"say in CHANGELOG.md what changes: `{named}`"


def test_what_is_marked_decides_nothing_and_all_else_something() -> None:
    for line in GOLDEN.read_text().splitlines():
        name, stages = line.split(": ")
        assert (stages == "nothing") != LEAVES[name].decides, line


def test_another_run_changes_nothing_of_the_others() -> None:
    base = BASES["mono"] | {"realign": {}}  # without it: the first run's network would align
    after = changed(base, LEAVES["training.runs.[].epochs"], 3)
    assert after is not None
    assert different(keys(check(base, "mono")), keys(after)) == {"run 0"}


@st.composite
def changes(draw: st.DrawFn) -> tuple[str, Leaf, Config]:
    """A valid config with some keys changed at random; its base and the last of these keys."""
    name = draw(st.sampled_from(sorted(BASES)))
    config, leaf = check(BASES[name], name), None
    for _ in range(draw(st.integers(1, 4))):
        tried = LEAVES[draw(st.sampled_from(sorted(LEAVES.keys() - OTHER_SECTIONS)))]
        other = changed(yaml.safe_load(resolved(config)), tried, draw(values(tried.node)))
        if other is not None:
            config, leaf = other, tried
    assume(leaf is not None)
    assert leaf is not None
    return name, leaf, config


SEVERAL = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@SEVERAL
@given(changes())
def test_any_config_survives_its_snapshot(found: tuple[str, Leaf, Config]) -> None:
    _, _, config = found
    again = check(yaml.safe_load(resolved(config)), "snapshot")
    assert again == config
    assert keys(again) == keys(config)


@SEVERAL
@given(st.data())
def test_keys_follow_what_decides(data: st.DataObject) -> None:
    """From any config, a change of a marked key changes no key of a stage."""
    _, _, before = data.draw(changes())
    marked = sorted(name for name, leaf in LEAVES.items() if not leaf.decides)
    leaf = LEAVES[data.draw(st.sampled_from(marked))]
    after = changed(yaml.safe_load(resolved(before)), leaf, data.draw(values(leaf.node)))
    assume(after is not None)
    assert after is not None
    assert keys(after) == keys(before)


@settings(SEVERAL, max_examples=3)
@given(changes())
def test_any_config_can_be_planned(
    tmp_path_factory: pytest.TempPathFactory, found: tuple[str, Leaf, Config]
) -> None:
    _, _, config = found
    folder = tmp_path_factory.mktemp("planned")
    planned = StandIn(folder, yaml.safe_load(resolved(config)))
    assert "train" in {job.split(".")[0] for job in with_sources(planned)}


def with_sources(workflow: StandIn) -> set[str]:
    """What would be made, once the files that the config names are there."""
    for _ in range(20):
        try:
            return workflow.planned(results="results")
        except AssertionError as error:
            missing = re.search(r"affected files:\n((?: +\S+\n)+)", str(error))
            if missing is None:
                raise
            for name in missing[1].split():
                path = workflow.folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
    raise AssertionError("files are missing without end")


if __name__ == "__main__":
    GOLDEN.write_text(table())
    VALUES.write_text(key_values())
    print(f"keys {fingerprint_of(VALUES.read_text())}")
