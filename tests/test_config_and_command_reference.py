"""The reference pages name every key and every argument, and are what the code says."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from schema_leaves import leaves

from hadpsgd.cli import STAGES, load

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "docs/site"))

import reference  # noqa: E402

KEYS = ROOT / "docs/reference/config.md"
COMMANDS = ROOT / "docs/reference/commands.md"


def rows(text: str) -> dict[str, list[str]]:
    """First cell of each row of the tables, without its quotes, to the others."""
    found = {}
    for line in text.splitlines():
        if line.startswith("| `"):
            first, *others = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
            found[first.strip("`")] = others
    return found


@pytest.mark.parametrize(
    ("page", "made"), [(KEYS, reference.config_page), (COMMANDS, reference.commands_page)]
)
def test_pages_are_up_to_date(page: Path, made: Callable[[], str]) -> None:
    assert page.read_text().splitlines() == made().splitlines(), "run `make reference`"


def test_no_key_is_undocumented() -> None:
    page = KEYS.read_text()
    described = rows(page)
    alone = re.search(r"For this run alone, as under `training`: (.*)\.", page)
    assert alone
    shared = re.findall(r"`(\w+)`", alone[1])
    for name in leaves():
        key = name.removeprefix("training.runs.[].")
        if key != name and key.split(".")[0] in shared:
            name = f"training.{key}"
        elif key != name and key.startswith("model."):
            name = key
        meaning, value, _, again = described[name]
        assert len(meaning.split()) > 1 and value and again, name


def test_no_argument_is_undocumented() -> None:
    sections = re.split(r"^## `hadpsgd ([\w-]+)`$", COMMANDS.read_text(), flags=re.MULTILINE)
    described = dict(zip(sections[1::2], map(rows, sections[2::2]), strict=True))
    assert described.keys() == STAGES.keys()
    for stage, arguments in described.items():
        parser = argparse.ArgumentParser(prog=stage, add_help=False)
        load(stage).configure(parser)
        wanted = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", parser.format_usage()))
        assert wanted <= set(re.findall(r"--?[a-z][a-z-]*", " ".join(arguments))), stage
        assert all(
            meaning.strip("()") != "required" and meaning for meaning, _ in arguments.values()
        )
