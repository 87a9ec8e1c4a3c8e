"""Minibatches that are put together on a GPU are those of a processor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from processes import run
from test_egs_streams import Prepared
from test_masking import SPEC

from hadpsgd.config.settings import Settings
from hadpsgd.egs.dataset import Dataset, Plan
from hadpsgd.egs.masking import Masks
from hadpsgd.training.data import Feed
from hadpsgd.training.staging import Example

BUSY = 20_000_000
"""Cycles: some 10 ms, in which batches that were read ahead wait for the GPU."""


def read(_: int, egs: Path, device: str, kind: str) -> list[Example]:
    """Batches of three epochs and the held-out ones, on the host; the GPU is behind all along."""
    dataset = Dataset(egs)
    spec = SPEC | {"frequency_width": 3, "time_width": 3}
    settings = Settings.model_validate({"spec_augment": spec, "ivector_dropout": 0.3})
    place, dtype = torch.device(device), getattr(torch, kind)
    feed = Feed(
        dataset,
        Plan(size=len(dataset), batch=16, seed=1),
        rank=1,
        learners=2,
        device=place,
        dtype=dtype,
        masks=Masks.of(settings, 7, dataset),
    )
    found = []
    for batch in feed.batches(0, 3 * feed.plan.steps):
        if device == "cuda":
            torch.cuda._sleep(BUSY)
        found.append(tuple(tensor.clone() for tensor in batch))
    found += [feed.example(step=5, rank=0), feed.of(np.array([len(dataset) - 1]))]
    found += list(feed.share(rank=0, learners=1))
    return [(x.cpu(), y.cpu()) for x, y in found]


@pytest.mark.parametrize(
    ("stored", "kind"), [("int8", "float32"), ("float16", "float32"), ("int8", "float64")]
)
def test_batches_are_those_of_a_processor(
    stored: str, kind: str, tmp_path: Path, device: str
) -> None:
    """8 bits, deltas, an i-vector every five frames, masks, padding; also while it is behind."""
    prepared = Prepared(tmp_path, per="online", utterances=120, shard_frames=1000, dtype=stored)
    assert prepared.run("--held-out") == 0
    [ours] = run(1, read, tmp_path / "egs", device, kind, seconds=120)
    [theirs] = run(1, read, tmp_path / "egs", "cpu", kind, seconds=120)
    assert len(ours) == len(theirs) > 60
    for (x, y), (x2, y2) in zip(ours, theirs, strict=True):
        assert torch.equal(y, y2) and x.dtype == getattr(torch, kind)
        torch.testing.assert_close(x, x2, rtol=0, atol=2e-6)
