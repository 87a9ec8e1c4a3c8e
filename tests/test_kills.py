"""Snakemake killed outright, a full disk: the same command ends in the same result.

Two moments of `benchmarks/kills.py`, which does as many as one likes.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from small_workflow import Small

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

from kills import BEFORE_TRAINING, one, small_disks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(("struck", "moment"), [("snakemake", 12.0), ("disk", 9.0)])
def test_the_same_command_completes_it(
    struck: str, moment: float, small: Small, tmp_path: Path
) -> None:
    if struck == "disk" and not small_disks():
        pytest.skip("a small file system cannot be mounted here: that needs root")
    outcome = one(struck, moment, tmp_path / "struck", small, random.Random(1), BEFORE_TRAINING)
    assert outcome.attempts == 1 and outcome.same, outcome
