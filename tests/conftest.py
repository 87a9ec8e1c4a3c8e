"""What all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings
from slurm_cluster import slurm  # noqa: F401  the fixture
from small_workflow import small  # noqa: F401  the fixture
from tracking_store import empty_mlflow, mlflow_folder, no_tracking_uri  # noqa: F401

import hadpsgd  # noqa: F401  before kaldifst: see hadpsgd/__init__.py

ROOT = Path(__file__).resolve().parents[1]

os.environ.setdefault("OMP_NUM_THREADS", "1")

# the same examples in every run, however slow the machine; others: --hypothesis-profile explore
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile("repeatable")


# made once a session, and too long to be made by each of several processes
SHARED_FIXTURES = ("small", "slurm")


@pytest.hookimpl(tryfirst=True)  # before xdist's own, which reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Side by side (`pytest -n 2 --dist loadgroup`): one process for a file or a long fixture.

    Groups with slow tests come first, so that no process is left alone with one at the end.
    """
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        used = [name for name in SHARED_FIXTURES if name in getattr(item, "fixturenames", ())]
        group = used[0] if used else item.path.stem
        item.add_marker(pytest.mark.xdist_group(group))
        groups.setdefault(group, []).append(item)
    slow_first = sorted(groups.values(), key=lambda group: not any(map(_slow, group)))
    items[:] = [item for group in slow_first for item in group]


def _slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


@pytest.fixture(scope="session")
def shared() -> Path:
    """The reference data (AN4, Kaldi's results on it, SCTK's tests)."""
    folder = Path(os.environ.get("HADPSGD_SHARED", ROOT.parent / "shared"))
    if not folder.is_absolute():
        folder = ROOT / folder
    if not (folder / "kaldi_an4").is_dir():
        pytest.skip(f"no reference data at {folder}: set HADPSGD_SHARED")
    return folder
