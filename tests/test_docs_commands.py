"""Every command of the documentation: run by a test, or marked as needing what it needs.

A comment above a block of commands marks it: `run` (here, as it stands), `run by: TEST`, or
`needs: WHAT`. Pages of results say how they were made; their commands are only looked at.
"""

from __future__ import annotations

import argparse
import itertools
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hadpsgd.cli import SCRIPT, STAGES, _imported, load, main

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs/benchmarks"
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "config/*.md", "profiles/*/*.md")
    for page in ROOT.glob(pattern)
)
PROGRAMS = (
    "hadpsgd",
    "make",
    "snakemake",
    "mlflow",
    "torchrun",
    "srun",
    "sbatch",
    "podman",
    "git",
    "pip",
    "source",
    "export",
    "rm",
    r"(?:\.venv/bin/)?python3?",
)
COMMAND = re.compile(
    rf"(?:\$ )?((?:\w+=\S+ |nice -n -?\d+ |chrt -r \d+ )*(?:{'|'.join(PROGRAMS)}) \S.*)"
)
BLOCK = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
MARK = re.compile(r"run|run by: (tests/\w+\.py)::(\w+)|needs: .+")
PLACEHOLDERS = ("FILE", "mine", "words/")


@dataclass(frozen=True)
class Block:
    """Commands of a page that stand together."""

    page: Path
    line: int
    mark: str
    commands: tuple[str, ...]

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in BLOCK.finditer(text):
        mark, language, body = found.groups()
        lines = body.replace("\\\n", " ").splitlines()
        commands = tuple(match[1] for match in map(COMMAND.fullmatch, lines) if match)
        if commands and language in ("", "bash", "sh", "console"):
            yield Block(page, text[: found.start(3)].count("\n"), mark or "", commands)


BLOCKS = [block for page in PAGES for block in blocks(page)]
MANUALS = [block for block in BLOCKS if RESULTS not in block.page.parents]


def words(command: str) -> list[str]:
    """A command's words, without variables before it, the comment behind it and brackets around
    what may be left out."""
    found = shlex.split(re.sub(r"[\[\]]", "", command), comments=True)
    while "=" in found[0]:
        found = found[1:]
    return found[3:] if found[0] in ("nice", "chrt") else found


def test_no_block_is_overlooked() -> None:
    """All commands that begin a line are in blocks that are found."""
    starts = re.compile(rf"^\s*(?:\$ )?({'|'.join(PROGRAMS)}) +[-\w./]+( .*)?$", re.MULTILINE)
    for page in PAGES:
        indented = [m[0] for m in starts.finditer(page.read_text()) if m[0].startswith("    ")]
        known = " ".join(command for block in blocks(page) for command in block.commands)
        assert not [line for line in indented if line.strip() not in known], page
    assert len(MANUALS) > 25


@pytest.mark.parametrize("block", MANUALS, ids=lambda block: block.where)
def test_it_is_marked(block: Block) -> None:
    mark = MARK.fullmatch(block.mark)
    assert mark, f"{block.where}: mark it with run, run by: TEST or needs: WHAT (CONTRIBUTING.md)"
    if mark[1]:
        assert re.search(rf"^def {mark[2]}\(", (ROOT / mark[1]).read_text(), re.MULTILINE), block


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.where)
def test_what_it_names_is_there(block: Block) -> None:
    """Stages with their arguments, files, profiles, targets of make."""
    for command in block.commands:
        program, *arguments = words(command)
        if program == "hadpsgd":
            parsed(arguments)
        elif program == "make":
            targets = re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert arguments[0] in targets, command
        elif program == "snakemake":
            given = dict(itertools.pairwise(arguments))
            config = given.get("--configfile", "config/demo.yaml")
            assert (
                (ROOT / config).is_file()
                or config.startswith(PLACEHOLDERS)
                or any(name in config for name in PLACEHOLDERS)
            ), command
            assert any((ROOT / at / given["--profile"]).is_dir() for at in ("", "profiles")), (
                command
            )
        elif program.endswith("python") and arguments[0] != "-m":
            assert (ROOT / arguments[0]).is_file(), command


def parsed(arguments: list[str]) -> argparse.Namespace:
    """By the stage's own parser, which exits with what is wrong."""
    stage, *rest = arguments
    script = stage == "launch" and rest[0] == "--learners"
    assert stage in STAGES, stage
    parser = argparse.ArgumentParser(prog=f"hadpsgd {stage}")
    (_imported(SCRIPT) if script else load(stage)).configure(parser)
    return parser.parse_args(rest)


@pytest.mark.parametrize("block", [b for b in MANUALS if b.mark == "run"], ids=lambda b: b.where)
def test_it_runs_as_it_stands(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for command in block.commands:
        assert main(words(command)[1:]) == 0, command
