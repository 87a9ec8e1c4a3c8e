"""Inputs put together as on a GPU: those that a processor puts together, on the processor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from test_egs_streams import FRAMES, Prepared
from test_masking import SPEC

from hadpsgd.config.settings import Settings
from hadpsgd.egs.dataset import Dataset, Plan
from hadpsgd.egs.masking import Masks
from hadpsgd.models.loss import IGNORE
from hadpsgd.training import data
from hadpsgd.training.data import Feed
from hadpsgd.training.staging import Example
from hadpsgd.training.unpacking import Unpacker

CPU = torch.device("cpu")
TOLERANCE = {torch.float32: 2e-6, torch.float64: 2e-6}
"""Deltas are sums of a few values in float32 there, in float64 here."""


def bytes_of(*shape: int) -> np.ndarray:
    """Not pinned, and not zero."""
    return np.full(shape, 0xA5, np.uint8)


def unpacked(dataset: Dataset, indices: np.ndarray, dtype: torch.dtype = torch.float32) -> Example:
    return Unpacker(dataset, CPU, dtype)(dataset.stored(indices, bytes_of))


@pytest.fixture
def online(tmp_path: Path) -> Dataset:
    """In 8 bits, several files, padded ends, an i-vector every five frames."""
    return made(tmp_path, per="online", kind="int8")


def made(folder: Path, *, per: str, kind: str, readers: int = 1) -> Dataset:
    prepared = Prepared(folder, per=per, utterances=120, shard_frames=1000, dtype=kind)
    assert prepared.run("--held-out") == 0
    return Dataset(folder / "egs", readers=readers)


@pytest.mark.parametrize("per", ["speaker", "online"])
@pytest.mark.parametrize("kind", ["float32", "float16", "int8"])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_inputs_are_those_of_a_processor(
    tmp_path: Path, per: str, kind: str, dtype: torch.dtype
) -> None:
    dataset = made(tmp_path, per=per, kind=kind, readers=2)
    indices = np.sort(np.random.default_rng(3).permutation(len(dataset))[:41])
    features, labels = dataset.gather(indices)
    for one in indices[:3, None]:  # a part of one row is contiguous wherever it begins
        np.testing.assert_allclose(unpacked(dataset, one)[0], dataset.gather(one)[0], atol=2e-6)
    x, targets = unpacked(dataset, indices, dtype)
    assert x.dtype == dtype and len(set(dataset.rows.shards(indices))) > 1
    np.testing.assert_allclose(x.numpy(), features, rtol=0, atol=TOLERANCE[dtype])
    np.testing.assert_array_equal(targets.numpy(), np.where(labels < 0, IGNORE, labels))
    padded = labels < 0
    assert padded.any() and not x.numpy()[padded].any()
    static = slice(0, 2 + 4 + 8)  # of all but deltas the bits are the same
    np.testing.assert_array_equal(x.float().numpy()[..., static], features[..., static])


def test_tf32_does_not_touch_deltas(online: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their products are of float64."""
    seen = []
    multiply = torch.matmul

    def watched(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        seen.append((a.dtype, b.dtype))
        return multiply(a, b)

    monkeypatch.setattr(torch, "matmul", watched)
    unpacked(online, np.arange(5))
    assert seen == [(torch.float64, torch.float64)]


@pytest.mark.parametrize("kind", ["float16", "int8"])
def test_a_feed_gives_the_same_either_way(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With masks, in its turn and by number; evaluation has none."""
    dataset = made(tmp_path, per="speaker", kind=kind)
    spec = SPEC | {"frequency_width": 3, "time_width": 3}
    settings = Settings.model_validate({"spec_augment": spec, "ivector_dropout": 0.3})
    masks = Masks.of(settings, 7, dataset)
    plan = Plan(size=len(dataset), batch=16, seed=1)

    def feed() -> Feed:
        return Feed(dataset, plan, rank=1, learners=2, device=CPU, masks=masks)

    ours, theirs = feed(), feed()
    monkeypatch.setattr(data, "pinned", bytes_of)
    theirs._unpack = Unpacker(dataset, CPU, torch.float32)
    start = plan.steps - 1
    pairs = list(zip(ours.batches(start, start + 3), theirs.batches(start, start + 3), strict=True))
    pairs += [(f.example(step=2, rank=0), f2.example(step=2, rank=0)) for f, f2 in [(ours, theirs)]]
    pairs += list(
        zip(ours.share(rank=0, learners=1), theirs.share(rank=0, learners=1), strict=True)
    )
    assert len(pairs) > 5
    for (x, y), (x2, y2) in pairs:
        assert x.shape[1] == FRAMES and torch.equal(y, y2)
        torch.testing.assert_close(x, x2, rtol=0, atol=2e-6)
    masked, plain = pairs[0][0][0], ours.of(plan.part(epoch=0, step=start, rank=1, learners=2))[0]
    assert not torch.equal(masked, plain)
