"""Read a YAML config; refuse what the schema does not know, by name."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from hadpsgd.config.base import deciding
from hadpsgd.config.removed import REMOVED
from hadpsgd.config.schema import Config
from hadpsgd.config.yaml_text import parsed
from hadpsgd.errors import UserError


def load(path: Path | str) -> Config:
    """Read and check a config file.

    Raises:
        UserError: the file cannot be read, is not YAML, has an unknown key or a wrong value.
    """
    return check(content_of(Path(path)), path)


def content_of(path: Path) -> dict[str, Any]:
    """What a config file says, unchecked.

    Raises:
        UserError: the file cannot be read, is not YAML, or has a key twice.
    """
    try:
        content = parsed(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise UserError(
            "no such config", where=path, fix="Examples lie in the folder config/"
        ) from None
    except UnicodeDecodeError:
        raise UserError("not UTF-8 text", where=path, fix="Is this a config?") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else path
        raise UserError(f"not YAML: {getattr(error, 'problem', error)}", where=where) from None
    if not isinstance(content, dict):
        raise UserError("a config is a mapping of keys to values", where=path)
    return content


def check(content: dict[str, Any], where: object) -> Config:
    """Check a config given as a dictionary; `where` names it in errors."""
    try:
        return Config.model_validate(content)
    except ValidationError as error:
        told = [_explain(fault) + _belonging(fault["loc"], content) for fault in error.errors()]
        raise UserError("; ".join(told), where=where) from None


def _belonging(place: tuple[int | str, ...], content: dict[str, Any]) -> str:
    """Of which run a key is, or of which file, where its name does not tell."""
    try:
        match place:
            case ("training", "runs", int(number), _, *_):
                run = content["training"]["runs"][number]
                return f" (run {number + 1}, '{run.get('name') or run.get('strategy', 'single')}')"
            case ("site", _, *_):
                return "" if isinstance(content["site"], dict) else f" ({content['site']})"
    except (LookupError, TypeError, AttributeError):
        pass
    return ""


def _explain(error: Any) -> str:
    # a discriminated union puts its tag into the location; the user never wrote it
    parts = [str(part) for part in error["loc"]]
    key = ".".join(p for i, p in enumerate(parts) if not (i == 1 and p == _tag(parts)))
    if error["type"] == "extra_forbidden" and key in REMOVED:
        return f"there is no key '{key}' any more: {REMOVED[key]}"
    if error["type"] == "extra_forbidden":
        beside = _keys_beside(parts)
        allowed = sorted(beside)
        close = difflib.get_close_matches(parts[-1], allowed, n=1)
        below = _below(beside, parts[-1], key.removesuffix(parts[-1]))
        meant = below or _below(_keys_of(_schema()), parts[-1]) or close
        hint = f"did you mean {' or '.join(map(repr, meant))}? " if meant else ""
        return f"unknown key '{key}': {hint}allowed here: {', '.join(allowed)}"
    if error["type"] == "missing":
        return f"key '{key}' is missing"
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "model_type":  # pydantic's text names a class
        message = "give keys and values, or {} for the defaults"
    given = error.get("input")
    shown = "" if isinstance(given, (dict, list, BaseModel)) else f" ({given!r})"
    return f"'{key}'{shown}: {message}" if key else message


def _tag(parts: list[str]) -> str | None:
    return parts[1] if len(parts) > 1 and parts[0] in ("corpus", "alignment") else None


def _keys_beside(parts: list[str]) -> dict[str, Any]:
    """Keys that the schema allows where the key at `parts` stood, and what it says of each."""
    node: Any = _schema()
    for part in parts[:-1]:
        node = _section(node)
        if "discriminator" in node:
            node = {"$ref": node["discriminator"]["mapping"][part]}
        elif part.isdigit():
            node = node["items"]
        else:
            node = node.get("properties", {}).get(part) or node["additionalProperties"]
    return _keys_of(node)


def _below(sections: dict[str, Any], key: str, place: str = "") -> list[str]:
    """Where the sections, which lie at a place, have such a key."""
    return [f"{place}{name}.{key}" for name in sorted(sections) if key in _keys_of(sections[name])]


def _keys_of(node: Any) -> dict[str, Any]:
    """Keys of a section of the schema; of anything else none."""
    found: dict[str, Any] = _section(node).get("properties", {})
    return found


def _section(node: Any) -> Any:
    """What a node of the schema refers to. A short form (a path, say) may stand beside a section:
    the section has keys."""
    while "$ref" in node or "anyOf" in node:
        choices = node.get("anyOf", [node])
        node = next((each for each in choices if "$ref" in each or "properties" in each), {})
        if "$ref" in node:
            node = _schema()["$defs"][node["$ref"].split("/")[-1]]
    return node


@cache
def _schema() -> dict[str, Any]:
    """Of a config; it takes a third of a second to make."""
    return Config.model_json_schema()


def fingerprint(sections: Iterable[object]) -> str:
    """Hash of what a stage depends on; equal values give equal hashes on every machine.

    Keys that decide nothing (marked so in the schema) do not count.
    """
    text = json.dumps([*map(deciding, sections)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
