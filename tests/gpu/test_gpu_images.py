"""`hadpsgd images` by four learners that share a GPU."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import picture_folders
import pytest
import torch
from processes import run

from hadpsgd.images.folders import Folders
from hadpsgd.images.training import Settings, train


def learner(_: int, wanted: Settings) -> None:
    """One process."""
    train(wanted)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return picture_folders.ready(tmp_path_factory.mktemp("pictures"))


@pytest.mark.parametrize("strategy", ["adpsgd", "d1d", "ssgd"])
def test_learners_that_share_a_gpu(
    strategy: str, pictures: Path, tmp_path: Path, device: str
) -> None:
    """The network that they end with is what the summary says, on the processor too."""
    small = picture_folders.settings(pictures, tmp_path, engine={"strategy": strategy})
    run(4, learner, replace(small, device=device, between_gpus="host"), seconds=150)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["heldout_top1"] >= 0.9 and summary["learners"] == 4
    net = picture_folders.Tiny(3)
    net.load_state_dict(torch.load(tmp_path / "final.pt", map_location="cpu")["model"])
    held_out = Folders.open(pictures, size=picture_folders.SIZE).held_out
    net.eval()
    with torch.no_grad():
        right = [int(net(x[None]).argmax()) == y for x, y in map(held_out.__getitem__, range(30))]
    assert sum(right) / 30 == pytest.approx(summary["heldout_top1"], abs=0.04)
