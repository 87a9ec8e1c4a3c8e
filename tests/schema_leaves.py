"""Every key of the config's schema: where it lies, what it may be, and configs that use it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from hypothesis import strategies as st

from hadpsgd.config import Config, check, run_key, stage_keys
from hadpsgd.config.command import resolved
from hadpsgd.errors import UserError

Step = str | int
SCHEMA = Config.model_json_schema()
EACH, FIRST = "*", 0
"""Steps into a mapping of any names, and into a list."""

_KALDI = {
    "kind": "kaldi",
    "train": "data/train",
    "dev": "data/dev",
    "tests": {"eval": "data/eval"},
    "dict_dir": "dict",
    "lm_text": "text",
}
_PARTS = {
    "train": {"data": "data/train", "recordings": ["t*"]},
    "dev": {"data": "data/dev", "recordings": ["d*"]},
    "tests": {"eval": {"data": "data/eval", "recordings": ["e*"]}, "other": "data/other"},
}
_IMPORTS = {
    "logmel": {"feats": "logmel/{set}.scp", "cmvn": "cmvn/{set}.scp"},
    "mfcc": {"feats": "mfcc/{set}.scp"},
    "fmllr": {"trans": "trans", "model": "model"},
    "ivector": {"ivectors": "ivectors/{set}.scp"},
}
_ALL = ["fmllr", "ivector", "logmel"]
_ONE = {"name": "one", "learning_rate": {"base": 0.3}, "model": {"dropout": 0.1},
        "spec_augment": {"time_masks": 0}}  # fmt: skip
_TWO = {"name": "two", "seeds": [1, 2]}
_HYBRID = {"strategy": "hadpsgd", "learners": 4, "super_learner": 2}
_GRID = {
    "part": "learners",
    "run": {"strategy": "adpsgd", "learners": 2},
    "over": {"batch": [64, 128]},
}
CONFIGS: dict[str, dict[str, Any]] = {
    "builtin": {
        "corpus": {"kind": "builtin", "held_out_words": 0.1},
        "features": {"dither": 1.0},
        "training": {"runs": [_HYBRID]},
        "lm": {"pieces": 40},
    },
    "an4": {
        "corpus": {"kind": "an4", "path": "an4", "speeds": [0.9, 1.0], "noise": {"copies": 1}},
        "alignment": {"kind": "sat"},
        "features": {"input": _ALL},
        "training": {"stages": [{"criterion": "lfmmi"}]},
        "lm": {"neural": {}},
        "decoding": {"gmm": True, "ensembles": {"both": ["single", "gmm-sat"]}},
    },
    "kaldi": {
        "corpus": _KALDI | _PARTS | {"case": "lower"},
        "alignment": {"kind": "kaldi", "ali_dir": "ali/{set}", "lang_dir": "lang"},
        "features": {"input": _ALL, "imports": _IMPORTS},
        "lm": {"sources": {"more": "more.txt"}},
    },
    "mono": {
        "corpus": _KALDI,
        "training": {
            "runs": [_ONE | {"strategy": "adpsgd", "learners": 2, "launcher": "virtual"}, _TWO]
        },
        "features": {"input": _ALL, "imports": {"fmllr": {"feats": "fmllr/{set}.scp"}}},
        "realign": {"passes": 1},
    },
    "ldc": {
        "corpus": {
            "kind": "ldc",
            "switchboard": {"audio": "swb", "transcripts": "ms98"},
            "eval2000": {"audio": "hub5", "transcripts": "hub5"},
            "fisher": {"audio": ["fsh1", "fsh2"], "transcripts": ["fsh"]},
        },
    },
    "lhotse": {
        "corpus": {
            "kind": "lhotse",
            "train": {"recordings": "train_rec.jsonl", "supervisions": "train_sup.jsonl"},
            "dev": {"cuts": "dev.jsonl"},
            "tests": {
                "eval": {"recordings": "eval_rec.jsonl", "supervisions": "eval_sup.jsonl"},
                "other": {"cuts": "other.jsonl"},
            },
            "dict_dir": "dict",
        },
    },
    "cuts": {
        "corpus": {
            "kind": "lhotse",
            "train": {"cuts": "train.jsonl"},
            "dev": {"recordings": "dev_rec.jsonl", "supervisions": "dev_sup.jsonl"},
            "tests": {"eval": {"cuts": "eval.jsonl"}},
            "dict_dir": "dict",
            "lm_text": "text",
        },
    },
    "grids": {
        "corpus": {"kind": "builtin"},
        "training": {"grids": [_GRID]},
    },
}
"""Together they use every key."""


def content(name: str) -> dict[str, Any]:
    """One of `CONFIGS` with all defaults written out."""
    return yaml.safe_load(resolved(check({"name": "x"} | CONFIGS[name], name)))


@dataclass(frozen=True)
class Leaf:
    """A key that holds a value."""

    path: tuple[Step, ...]
    node: Any
    """Its JSON Schema, references followed."""
    decides: bool
    """Whether it may decide a bit of a result."""

    @property
    def name(self) -> str:
        """As people write it."""
        return ".".join("[]" if step == FIRST else str(step) for step in self.path)


def leaves() -> dict[str, Leaf]:
    """All of them by name; those of several kinds of a section taken together."""
    found: dict[str, Leaf] = {}
    for leaf in _below((), SCHEMA, decides=True):
        known = found.setdefault(leaf.name, leaf)
        if known is not leaf:
            kinds = [*known.node.get("anyOf", [known.node]), leaf.node]
            found[leaf.name] = Leaf(leaf.path, {"anyOf": kinds}, known.decides or leaf.decides)
    return found


def _below(path: tuple[Step, ...], node: Any, *, decides: bool) -> Iterator[Leaf]:
    decides = decides and node.get("decides") != "nothing"
    while "$ref" in node:
        node = SCHEMA["$defs"][node["$ref"].rsplit("/", 1)[-1]]
    kinds = [*node.get("anyOf", []), *node.get("oneOf", [])]
    plain = []
    for kind in kinds:
        if _is_section(kind):
            yield from _below(path, kind, decides=decides)
        elif kind.get("type") != "null":
            plain.append(kind)
    if plain:
        yield Leaf(path, {"anyOf": plain}, decides)
    for name, kind in node.get("properties", {}).items():
        yield from _below((*path, name), kind, decides=decides)
    if kinds or "properties" in node:
        return
    for step, kind in ((EACH, node.get("additionalProperties")), (FIRST, node.get("items"))):
        if isinstance(kind, dict) and _is_section(kind):
            yield from _below((*path, step), kind, decides=decides)
    yield Leaf(path, node, decides)


def _is_section(node: Any) -> bool:
    while "$ref" in node:
        node = SCHEMA["$defs"][node["$ref"].rsplit("/", 1)[-1]]
    return "properties" in node or any(map(_is_section, node.get("anyOf", [])))


def values(node: Any) -> st.SearchStrategy[Any]:
    """Values that a key's schema allows, most of them moderate ones."""
    while "$ref" in node:
        node = SCHEMA["$defs"][node["$ref"].rsplit("/", 1)[-1]]
    if "anyOf" in node:
        return st.one_of([values(kind) for kind in node["anyOf"]])
    if "enum" in node or "const" in node:
        return st.sampled_from(node.get("enum", [node.get("const")]))
    match node.get("type"):
        case "boolean":
            return st.booleans()
        case "integer":
            least = node.get("minimum", node.get("exclusiveMinimum", -1) + 1)
            return st.integers(least, min(node.get("maximum", 10**6), least + 200))
        case "number":
            low = node.get("minimum", node.get("exclusiveMinimum", -100.0))
            high = node.get("maximum", node.get("exclusiveMaximum", 1000.0))
            above, below = "exclusiveMinimum" in node, "exclusiveMaximum" in node
            return st.floats(low, high, exclude_min=above, exclude_max=below)
        case "string":
            return st.from_regex(node.get("pattern", r"^[a-z/]{1,9}$"), fullmatch=True)
        case "array":
            least = node.get("minItems", 0)
            return st.lists(values(node["items"]), min_size=least, max_size=3)
        case "object":
            inner = node.get("additionalProperties")
            if not isinstance(inner, dict):  # a section: all of its keys may be left out
                return st.just({})
            names = st.sampled_from(["0", "1", "eval", "default"])
            return st.dictionaries(names, values(inner), max_size=2)
        case _:
            return st.none()


def named(mapping: Any, step: Step) -> Any:
    """A step into a mapping of any names is one to the first of them."""
    return next(iter(mapping), "") if step == EACH and isinstance(mapping, dict) else step


def changed(base: dict[str, Any], leaf: Leaf, value: object) -> Config | None:
    """A config with another value of a key; None where that is not valid or has no place there."""
    new = copy.deepcopy(base)
    inner: Any = new
    *steps, last = leaf.path
    for step in steps:
        try:
            inner = inner[named(inner, step)]
        except (KeyError, IndexError, TypeError):
            return None
    if not isinstance(inner, dict):
        return None
    inner[named(inner, last)] = value
    try:
        return check(new, "changed")
    except UserError:
        return None


def keys(config: Config) -> dict[str, str]:
    """Keys of all stages, and of the folders of the runs, without their names."""
    folders = (run_key(config, run.id) for run in config.training.members)
    runs = {f"run {i}": folder.rsplit("-", 1)[-1] for i, folder in enumerate(folders)}
    return stage_keys(config) | runs


def different(one: dict[str, str], other: dict[str, str]) -> set[str]:
    """Stages that one of them lacks or has another key for."""
    return {stage for stage in one.keys() | other.keys() if one.get(stage) != other.get(stage)}
