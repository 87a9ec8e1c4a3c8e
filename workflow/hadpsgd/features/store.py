"""Features written as a stream's folder: feats.ark, feats.scp, utt2num_frames."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.files import atomic_file
from hadpsgd.kaldi_io import Writer

FRAMES_A_SECOND = 100


def store(items: Iterable[tuple[str, NDArray[np.float32]]], out: Path, name: str) -> int:
    """Write (utterance, [frames, dim]) pairs; returns how many. Says its speed on stderr."""
    out.mkdir(parents=True, exist_ok=True)
    start, frames = time.monotonic(), 0
    with ExitStack() as stack:
        counts = stack.enter_context(atomic_file(out / "utt2num_frames"))
        lines = stack.enter_context(counts.open("w", encoding="utf-8"))
        writer = stack.enter_context(Writer(ark=out / "feats.ark", scp=out / "feats.scp"))
        for utterance, features in items:
            writer.write(utterance, features)
            lines.write(f"{utterance} {len(features)}\n")
            frames += len(features)
    seconds = frames / FRAMES_A_SECOND
    print(
        f"{name}: {writer.count} utterances, {seconds / 3600:.2f} h, "
        f"{seconds / max(time.monotonic() - start, 1e-9):,.0f}x real time",
        file=sys.stderr,
    )
    return writer.count
