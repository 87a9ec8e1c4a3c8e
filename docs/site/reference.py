"""Reference pages from the code: every key of the config, every command.

    python docs/site/reference.py      # or: make reference

writes docs/reference/config.md and docs/reference/commands.md.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from hadpsgd.cli import STAGES, load
from hadpsgd.config import Config

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs/reference"
DECIDED = ROOT / "tests/golden/keys.txt"
"""Which stages a key decides, as the tests have found it out."""
SCHEMA = Config.model_json_schema()
COMMON = "training"
RUN = "training.runs.[]"

CONFIG_HEAD = """# Config keys

Made by `make reference` from the types in `workflow/hadpsgd/config/`.

A dot stands for a level of the YAML file: `features.logmel.bins` is
`features: {logmel: {bins: 40}}`. `[]` is each entry of a list, `*` each name of a mapping. A key
that has no default must be given. `hadpsgd config FILE` checks a config and prints it with every
default.

*Makes again* names the stages that a change of the key makes again, and every stage after them
follows ([what is made again](../reruns.md)). `runs` are all trainings that the key counts for,
`corpus.tests` the test sets, and with `nothing` all results stay.
"""
COMMANDS_HEAD = """# Commands

Made by `make reference` from the commands themselves. `hadpsgd --help` lists them, `hadpsgd STAGE
--help` explains one. The exit status is 0 where all went well, 2 after bad input (one line says
what and where), 1 where something failed or differs (`doctor`, `transcribe`, `rerun`), and 75 where
`launch` or `train` stopped at a checkpoint and is to be run again. The workflow calls most of
them; you can call each by hand.
"""


def main() -> None:
    """Write both pages."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "config.md").write_text(config_page(), encoding="utf-8")
    (FOLDER / "commands.md").write_text(commands_page(), encoding="utf-8")


def config_page() -> str:
    """Every key: meaning, what it may be, default, what a change makes again."""
    keys = SCHEMA["properties"].items()
    top = {name: node for name, node in keys if not _only_section(node)}
    parts = [CONFIG_HEAD, "## Top level\n", _table("", top)]
    for name, node in keys:
        if _sections(node):
            parts += _section(name, node, level=2)
    return "\n".join(parts)


def _section(path: str, node: Any, level: int) -> Iterator[str]:
    """A section with a table of its keys, then the sections inside; of several kinds, each."""
    kinds = _sections(node)
    if len(kinds) > 1:
        yield f"{'#' * level} `{path}`\n\n`{path}.kind` chooses one of these.\n"
    for kind in kinds:
        properties = dict(kind["properties"])
        named = _follow(properties.get("kind", {}))
        names = " or ".join(named.get("enum", [named["const"]] if "const" in named else []))
        title = f"`{path}`" + (f" of kind {names}" if names else "")
        yield f"{'#' * (level + (len(kinds) > 1))} {title}\n\n{_prose(_about(node, kind))}\n"
        shared = _as_common(path, properties)
        if shared:
            listed = ", ".join(f"`{name}`" for name in shared)
            yield f"For this run alone, as under `{COMMON}`: {listed}.\n"
            properties = {key: value for key, value in properties.items() if key not in shared}
        leaves = {key: value for key, value in properties.items() if not _only_section(value)}
        if leaves:
            yield _table(path + ".", leaves)
        for name, value in properties.items():
            for step, inner in _inner(name, value):
                yield from _section(f"{path}.{step}", inner, min(level + 1, 4))


def _inner(name: str, node: Any) -> list[tuple[str, Any]]:
    """The sections that a key holds, with the steps to them."""
    node = _follow(node)
    if _sections(node):
        return [(name, node)]
    held = (("*", _mapped(node)), ("[]", node.get("items")))
    return [(f"{name}.{step}", at) for step, at in held if isinstance(at, dict) and _sections(at)]


def _mapped(node: Any) -> Any:
    """What a mapping of names holds."""
    by_pattern = list(node.get("patternProperties", {}).values())
    return by_pattern[0] if by_pattern else node.get("additionalProperties")


def _as_common(path: str, properties: dict[str, Any]) -> list[str]:
    """Keys of a run that stand for those of `training`."""
    if path != RUN:
        return []
    common = _follow(SCHEMA["properties"][COMMON])["properties"]
    return [name for name in properties if name in common and name not in ("seed", "seeds")]


def _sections(node: Any) -> list[Any]:
    """The kinds of section that a key may be; none where it is a value."""
    node = _follow(node)
    if "properties" in node:
        return [node]
    kinds = [*node.get("anyOf", []), *node.get("oneOf", [])]
    return [section for kind in kinds for section in _sections(kind)]


def _only_section(node: Any) -> bool:
    """Whether a key holds nothing but a section, so that it has no row of its own."""
    node = _follow(node)
    kinds = [kind for kind in node.get("anyOf", []) if kind.get("type") != "null"]
    return bool(_sections(node)) and all(map(_only_section, kinds))


def _about(node: Any, kind: Any) -> str:
    """What a section is: said where it stands, or of its kind."""
    return kind.get("description") or _follow(node)["description"]


def _follow(node: Any) -> Any:
    """The node that a reference stands for."""
    while "$ref" in node:
        node = SCHEMA["$defs"][node["$ref"].rsplit("/", 1)[-1]]
    return node


def _table(prefix: str, keys: dict[str, Any]) -> str:
    rows = ["| key | meaning | value | default | makes again |", "|---|---|---|---|---|"]
    decided = _decided()
    for name, node in keys.items():
        meaning = _prose(node.get("description") or _follow(node).get("description", ""))
        stages = "nothing" if node.get("decides") == "nothing" else _stages(prefix + name, decided)
        cells = (f"`{prefix}{name}`", meaning, _value(node), _default(node), stages)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _decided() -> dict[str, str]:
    """Key to the stages that it decides, test sets under one name."""
    found = {}
    for line in DECIDED.read_text(encoding="utf-8").splitlines():
        key, stages = line.split(": ")
        names = [
            re.sub(r"^corpus\.(?!train$|dev$).*", "corpus.tests", s) for s in stages.split(", ")
        ]
        found[key] = ", ".join(dict.fromkeys(names))
    return found


def _stages(key: str, decided: dict[str, str]) -> str:
    """Those of a key, or of the mapping that it is in."""
    return decided.get(key) or decided.get(key.partition(".*")[0], "all that reads the section")


def _value(node: Any) -> str:
    """What a key may be, in words."""
    node = _follow(node)
    if "properties" in node:
        return "the section below"
    kinds = [*node.get("anyOf", []), *node.get("oneOf", [])]
    if kinds:
        told = [_value(kind) for kind in kinds if kind.get("type") != "null"]
        return " or ".join(dict.fromkeys(told))
    if "enum" in node or "const" in node:
        return ", ".join(f"`{value}`" for value in node.get("enum", [node.get("const")]))
    match node.get("type"):
        case "boolean":
            return "true or false"
        case "integer" | "number" as kind:
            return ", ".join([kind, *_bounds(node)])
        case "array":
            least = ", one at least" if node.get("minItems") else ""
            return f"list of: {_value(node['items'])}{least}"
        case "object":
            held = _mapped(node)
            return f"mapping of names to: {_value(held)}" if isinstance(held, dict) else "mapping"
        case "string":
            return f"text like `{node['pattern']}`" if "pattern" in node else "text"
        case _:
            return "any"


def _bounds(node: Any) -> Iterator[str]:
    words = {
        "minimum": "at least",
        "exclusiveMinimum": "above",
        "maximum": "at most",
        "exclusiveMaximum": "below",
    }
    for bound, word in words.items():
        if bound in node:
            yield f"{word} {node[bound]:g}"


def _default(node: Any) -> str:
    if "default" not in node:
        return "none" if _optional_mapping(node) else ""
    default = node["default"]
    if isinstance(default, float):
        return f"`{default:.6g}`"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, dict) and _sections(node):
        return "as below"
    if isinstance(default, list) and default and isinstance(default[0], dict):
        return "one run, as below"
    if isinstance(default, list | dict):
        return f"`{json.dumps(default)}`"
    return "left out" if default is None else f"`{default}`" if default != "" else "empty"


def _optional_mapping(node: Any) -> bool:
    """A mapping whose default is made anew each time has none in the schema."""
    return _follow(node).get("type") == "object" and "minProperties" not in node


def commands_page() -> str:
    """Every command: what it does, its arguments, their defaults."""
    parts = [COMMANDS_HEAD]
    for stage, (_, text) in STAGES.items():
        parser = argparse.ArgumentParser(prog=f"hadpsgd {stage}")
        with mock.patch("os.cpu_count", return_value="all cores"):
            load(stage).configure(parser)
        parts.append(f"## `hadpsgd {stage}`\n\n{_prose(text[0].upper() + text[1:])}.\n")
        parts.append(_arguments(parser))
    return "\n".join(parts)


def _arguments(parser: argparse.ArgumentParser) -> str:
    rows = ["| argument | meaning | default |", "|---|---|---|"]
    actions = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    for action in (a for a in actions if not isinstance(a, argparse._HelpAction)):
        cells = (_argument(action), _help(action), _given(action))
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _argument(action: argparse.Action) -> str:
    """As one writes it: `--out OUT`, `FILE [FILE ...]`."""
    if action.choices is not None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    else:
        named = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
        value = " ".join(named) if isinstance(named, tuple) else str(named)
    match action.nargs:
        case "*":
            value = f"[{value} ...]"
        case "+":
            value = f"{value} [{value} ...]"
        case "?":
            value = f"[{value}]"
        case int(count) if isinstance(action.metavar, str | None):
            value = " ".join([value] * count)
    flags = ", ".join(action.option_strings)
    return f"`{flags} {value}`".replace(" `", "`") if flags else f"`{value}`"


def _help(action: argparse.Action) -> str:
    told = (action.help or "") % (vars(action) | {"prog": "hadpsgd"})
    needed = " (required)" if action.option_strings and action.required else ""
    return _prose(told) + needed


def _given(action: argparse.Action) -> str:
    """The default, where it says something."""
    default = action.default
    if default in (None, False, "", argparse.SUPPRESS) or default == []:
        return ""
    if isinstance(default, list | tuple):
        return "`" + " ".join(map(str, default)) + "`"
    return f"`{default}`"


def _prose(text: str) -> str:
    """On one line; what Markdown would read as its own is escaped, except between backquotes."""
    pieces = re.split(r"(`[^`]*`)", " ".join(text.split()))
    escape = re.compile(r"([<>*]|\b_|_\b)")
    return "".join(p if p.startswith("`") else escape.sub(r"\\\1", p) for p in pieces)


if __name__ == "__main__":
    main()
