"""A small set of pictures made by numbers, and a network small enough for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

from hadpsgd.errors import UserError
from hadpsgd.images.recipe import Recipe
from hadpsgd.images.training import Settings
from hadpsgd.images.vision import torchvision

CLASSES = ("blue", "green", "red")
SIZE, BATCH, PICTURES = 12, 4, 96
"""Pixels of a side, pictures of a step, and of training."""


def ready(folder: Path) -> Path:
    """Make them there; torchvision knows the network `tiny`. Skips where it is not installed."""
    try:
        register()
    except UserError as error:
        pytest.skip(str(error))  # an extra
    return make(folder, train=PICTURES // 3, held_out=10)


def settings(pictures: Path, out: Path, **changes: Any) -> Settings:
    """A training of seconds; `recipe` changes some values of the recipe."""
    recipe: dict[str, Any] = {
        "batch": BATCH,
        "epochs": 6,
        "base_rate": 1.6,
        "warm_up": 1,
        "milestones": (5,),
    }
    recipe |= changes.pop("recipe", {})
    return Settings(
        data=pictures,
        out=out,
        model="tiny",
        recipe=Recipe(**recipe),
        size=SIZE,
        engine=changes.pop("engine", {"strategy": "dpsgd"}),
        workers=0,
        device="cpu",
        **{"statistics_batches": 8} | changes,
    )


def make(folder: Path, *, train: int, held_out: int, side: int = 12) -> Path:
    """`train` and `held_out` pictures of a class: noise, in which one colour is brighter."""
    from PIL import Image

    draws = np.random.default_rng(1)
    for part, count in (("train", train), ("val", held_out)):
        for number, name in enumerate(CLASSES):
            (folder / part / name).mkdir(parents=True)
            for i in range(count):
                pixels = draws.integers(0, 160, size=(side, side, 3))
                pixels[..., 2 - number] += 60
                picture = Image.fromarray(pixels.astype(np.uint8))
                picture.save(folder / part / name / f"{i:03d}.png")
    return folder


class Tiny(nn.Module):
    """Two of torchvision's residual blocks; 4 thousand parameters."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        block = torchvision().models.resnet.BasicBlock
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        wider = nn.Sequential(nn.Conv2d(8, 12, 1, 2, bias=False), nn.BatchNorm2d(12))
        self.blocks = nn.Sequential(block(8, 8), block(8, 12, 2, wider))
        self.fc = nn.Linear(12, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """[images, 3, side, side] -> [images, classes]."""
        return self.fc(self.blocks(self.stem(x)).mean((2, 3)))


def tiny(num_classes: int = 3) -> Tiny:
    """For `--model tiny`."""
    return Tiny(num_classes)


def register() -> None:
    """Let torchvision know it by name."""
    models = torchvision().models
    tiny.__module__ = "torchvision.models.tiny"
    models._api.BUILTIN_MODELS.setdefault("tiny", tiny)
