"""What all tests share."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from slurm_cluster import slurm  # noqa: F401  the fixture
from small_bundle import bundle, sides  # noqa: F401  the fixtures
from small_workflow import small  # noqa: F401  the fixture
from tracking_store import empty_mlflow, mlflow_folder, no_tracking_uri, unrecorded  # noqa: F401
from xdist.scheduler import LoadScopeScheduling

from hadpsgd.collecting import uncollected

ROOT = Path(__file__).resolve().parents[1]

os.environ.setdefault("OMP_NUM_THREADS", "1")
# threads that wait sleep soon: tests run side by side, and one that is awaited may have no core
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

# the same examples in every run, however slow the machine; others: --hypothesis-profile explore
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile("repeatable")


class ByFixture(LoadScopeScheduling):
    """Tests side by side (`pytest -n 2`): the tests of a file in one process.

    All files with the workflow `small`, or a bundle of it, too: it takes a minute or two to make.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return _group(Path(self.config.rootpath) / file)


@cache
def _group(file: Path) -> str:
    made = re.search(r"\b(small: Small|bundle: Path)\b", file.read_text(encoding="utf-8"))
    return "small" if made else file.stem


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFixture:
    """What hands out the tests."""
    return ByFixture(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """What the tests load stays; the garbage collector need not go through it again and again."""
    with uncollected():
        found = yield
    gc.freeze()
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups with slow tests first, so that no process is left alone with one at the end."""
    slow = {_group(item.path) for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: _group(item.path) not in slow)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The reference data (AN4, Kaldi's results on it, SCTK's tests)."""
    folder = Path(os.environ.get("HADPSGD_SHARED", ROOT.parent / "shared"))
    if not folder.is_absolute():
        folder = ROOT / folder
    if not (folder / "kaldi_an4").is_dir():
        pytest.skip(f"no reference data at {folder}: set HADPSGD_SHARED")
    return folder
