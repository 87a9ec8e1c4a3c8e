"""A bundle of the small workflow, made once a session, and recordings for it to transcribe."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_workflow import Small

from hadpsgd import cli

RATE = 8000
RUN = "hadpsgd-2x2-dpsgd"  # the same bits every time, where all else is the same
Signal = np.ndarray


@pytest.fixture(scope="session")
def bundle(small: Small, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bundle") / "bundle"
    folder = small.out / "runs" / small.key(RUN)
    assert cli.main(["export", str(folder), "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="session")
def sides(small: Small) -> tuple[Signal, Signal]:
    """Both sides of a test recording, of 10 s or more, float64 within -1 .. 1."""
    import soundfile  # here: machines for tests/gpu may lack it, and conftest.py imports this file

    file = next((small.out / "corpus" / "audio" / "swb").glob("*.wav"))
    samples, rate = soundfile.read(file)
    assert rate == RATE and samples.shape[1] == 2
    assert len(samples) >= 10 * RATE
    return samples[:, 0], samples[:, 1]


def transcribe(bundle: Path, out: Path, *more: object) -> int:
    return cli.main(["transcribe", str(bundle), "--out", str(out), *map(str, more)])
