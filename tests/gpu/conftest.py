"""Tests that need a GPU: they skip where torch sees none.

`HADPSGD_TEST_DEVICE=cpu` runs them on the processor, to try the tests themselves. pytest's own
process never wakes CUDA: learners are forked from it, and a fork of a process that did cannot.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from processes import run
from training_runs import write_examples


def sees_a_gpu(_: int) -> str:
    """What torch finds, for a process that may wake CUDA; empty: nothing."""
    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else ""


@pytest.fixture(scope="session")
def device() -> str:
    """Where the tests compute: cuda, or what HADPSGD_TEST_DEVICE says."""
    if wanted := os.environ.get("HADPSGD_TEST_DEVICE", ""):
        return wanted
    if not torch.backends.cuda.is_built():
        pytest.skip("needs a GPU: this torch is built without CUDA")
    if not run(1, sees_a_gpu)[0]:
        pytest.skip("needs a GPU: torch sees none")
    return "cuda"


@pytest.fixture(scope="session")
def egs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Examples to train on and held-out ones."""
    return write_examples(tmp_path_factory.mktemp("egs"))
