"""A stage begins without what it does not use: torch takes two seconds, scipy.signal one.

A workflow starts a hundred commands.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from hadpsgd.cli import STAGES

WITH_TORCH = {
    "doctor", "model-info", "train", "images", "realign", "replay", "rerun", "simulate",
    "plan", "neural-lm", "decode", "neural-lists", "export", "transcribe",
    "error-analysis", "beam-curve",
}  # fmt: skip
"""Stages that compute with a network, or measure one."""


@pytest.mark.parametrize(
    ("stages", "heavy"),
    [(sorted(STAGES.keys() - WITH_TORCH), ["torch", "mlflow"]), (sorted(STAGES), ["scipy.signal"])],
    ids=["torch", "scipy.signal"],
)
def test_what_a_stage_does_not_use_is_not_loaded(stages: list[str], heavy: list[str]) -> None:
    code = "import importlib, sys\n" + "".join(
        f"importlib.import_module({STAGES[stage][0]!r})\n"
        f"found = [name for name in {heavy} if name in sys.modules]\n"
        f"assert not found, ({stage!r}, found)\n"
        for stage in stages
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_model_that_mlflow_has_is_compared_without_torch() -> None:
    """`hadpsgd track` is called six times by the demo."""
    code = "import sys, hadpsgd.tracking.store; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
