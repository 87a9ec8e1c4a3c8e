"""The documentation: what `make docs` refuses, and pages that must keep up with the code."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from hadpsgd.config import Config, check

ROOT = Path(__file__).resolve().parents[1]


def built(folder: Path) -> subprocess.CompletedProcess[str]:
    """The site of a folder, by the Makefile's own arguments."""
    arguments = re.search(r"^SPHINX := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert arguments
    command = [sys.executable, "-m", "sphinx.cmd.build", *arguments[1].split()]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


FAULTS = {
    "[a](docs/none.md)": "target not found: 'docs/none.md'",
    "[a](docs/page.md#none)": "local id not found in doc 'docs/page': 'none'",
    "[a](none.py)": "target not found: 'none.py'",
    "![a](none.png)": "image file not readable: none.png",
}


def test_a_fault_of_a_page_fails_the_build(tmp_path: Path) -> None:
    site = tmp_path / "docs/site"
    shutil.copytree(ROOT / "docs/site", site, ignore=shutil.ignore_patterns("__pycache__"))
    (site / "toc.yml").write_text("root: README\nentries:\n  - file: docs/page\n")
    (tmp_path / "README.md").write_text("# Title\n\n[page](docs/page.md#part-one)\n")
    (tmp_path / "docs/page.md").write_text("# Page\n\n## Part one\n\ntext\n")
    sound = built(tmp_path)
    assert not sound.returncode, sound.stderr
    (tmp_path / "README.md").write_text("# Title\n\n" + "\n\n".join(FAULTS))
    (tmp_path / "docs/other.md").write_text("# Other\n")
    told = "other.md: WARNING: document isn't included in any toctree"
    for _ in range(2):  # what is built already hides nothing
        faulty = built(tmp_path)
        assert faulty.returncode
        assert [text for text in (*FAULTS.values(), told) if text not in faulty.stderr] == []


def test_every_result_is_on_the_page_of_formats() -> None:
    """What the rules write, by the first part of its path."""
    rules = "".join(file.read_text() for file in (ROOT / "workflow").rglob("*.smk"))
    written = set(re.findall(r"\{OUT\}/(\w+(?:\.\w+)?)", rules))
    assert len(written) > 25
    page = (ROOT / "docs/formats.md").read_text()
    assert [
        name for name in sorted(written) if not re.search(rf"`{re.escape(name)}[`/]", page)
    ] == []


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["version"] == project["version"]
    assert citation["license"] == project["license"]["text"]


def test_the_configs_of_the_pages_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sections of a config, or the keys of a site; what they leave out has its default."""
    monkeypatch.setenv("S5C", "/s5c")
    pages = [*ROOT.glob("*.md"), *(p for at in ("docs", "config", "profiles") for p in manuals(at))]
    found = 0
    for page in pages:
        for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
            content = yaml.safe_load(block)
            if not isinstance(content, dict):
                continue
            if not content.keys() & Config.model_fields.keys():
                content = {"site": content}
            check({"name": "page", "corpus": {"kind": "builtin"}} | content, str(page))
            found += 1
    assert found > 10


def manuals(folder: str) -> list[Path]:
    """Pages below a folder that are no results."""
    pages = sorted((ROOT / folder).rglob("*.md"))
    return [page for page in pages if page.parent.name != "benchmarks"]
