"""Image folders: DATA/train/CLASS/*.jpeg and DATA/val/CLASS/*.jpeg, as ImageNet is laid out.

A training image is a random piece of a picture, mirrored or not. Which piece is decided by the
picture's number, the epoch and the seed alone: not by who loads it, in which process, or after
which restart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from hadpsgd.decentralized.core.place import share_of_cores
from hadpsgd.errors import UserError
from hadpsgd.images.vision import torchvision

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's red, green and blue, by which images are normalised."""
RESIZED = 256 / 224
"""Size of a held-out picture's shorter side, over that of the piece in its middle that is used."""
KEYS = 1 << 31


class UnreadableError(UserError):
    """A picture that cannot be read.

    Where a process of its own loads, torch makes the error again, in the process that trains, of a
    text that ends with the traceback; what the first one said is its last line.
    """

    def __init__(self, text: str) -> None:
        last = text.strip().splitlines()[-1]
        super().__init__(last.removeprefix(f"{__name__}.{type(self).__name__}: "))


class Pictures(Dataset[tuple[Tensor, int]]):
    """One of the folders: [3, size, size] and the number of its class.

    Args:
        folder: with a folder for each class.
        size: pixels of an image's side.
        augment: random pieces, decided by the key; else the middle.

    Raises:
        UserError: no pictures there.
    """

    def __init__(self, folder: Path, *, size: int, augment: bool) -> None:
        vision = torchvision()
        try:
            found = vision.datasets.ImageFolder(folder)
        except FileNotFoundError as error:
            fix = "DATA/train and DATA/val each need a folder of pictures for every class"
            why = error.strerror or str(error).splitlines()[0].rstrip(".")
            raise UserError(why, where=folder, fix=fix) from None
        self.samples: list[tuple[str, int]] = found.samples
        self.classes: list[str] = found.classes
        self.augment = augment
        self._load = found.loader
        of = vision.transforms
        piece = (
            [of.RandomResizedCrop(size), of.RandomHorizontalFlip()]
            if augment
            else [of.Resize(round(size * RESIZED)), of.CenterCrop(size)]
        )
        self._transform = of.Compose([*piece, of.ToTensor(), of.Normalize(MEAN, DEVIATION)])

    def __len__(self) -> int:
        """Pictures."""
        return len(self.samples)

    def __getitem__(self, key: int) -> tuple[Tensor, int]:
        """A picture by its key: its number, and a multiple of their count (see `Keys`)."""
        path, label = self.samples[key % len(self)]
        try:
            picture = self._load(path)
        except OSError as error:
            raise UnreadableError(f"{path}: cannot be read ({error})") from None
        if not self.augment:
            return self._transform(picture), label
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(key)
            return self._transform(picture), label


class Keys(Sampler[list[int]]):
    """Batches of an epoch's keys, in an order of torch's random numbers; the rest is left out.

    An epoch draws a number; a key is that times the number of pictures, plus the picture's own.
    """

    def __init__(self, *, pictures: int, batch: int) -> None:
        self.pictures = pictures
        self.batch = batch

    def __len__(self) -> int:
        """Batches."""
        return self.pictures // self.batch

    def __iter__(self) -> Iterator[list[int]]:
        base = int(torch.randint(KEYS, ())) * self.pictures
        order = torch.randperm(self.pictures)[: len(self) * self.batch]
        for batch in order.view(-1, self.batch).tolist():
            yield [base + number for number in batch]


@dataclass(frozen=True)
class Folders:
    """What is learnt from, and what it is measured on."""

    train: Pictures
    held_out: Pictures

    @classmethod
    def open(cls, data: Path, *, size: int) -> Folders:
        """Find all pictures.

        Raises:
            UserError: a folder is missing, or the two have other classes.
        """
        train = Pictures(data / "train", size=size, augment=True)
        held_out = Pictures(data / "val", size=size, augment=False)
        if train.classes != held_out.classes:
            differ = sorted(set(train.classes) ^ set(held_out.classes))
            raise UserError(
                f"train and val have other classes ({', '.join(differ[:5])})", where=data
            )
        return cls(train, held_out)

    def batches(self, *, batch: int, workers: int) -> DataLoader[Any]:
        """Of an epoch of training."""
        keys = Keys(pictures=len(self.train), batch=batch)
        return _loader(self.train, keys, workers)

    def some(self, count: int, *, batch: int, seed: int, workers: int) -> DataLoader[Any]:
        """`count` batches of training (or an epoch's, if that has fewer), by a seed."""
        keys = Keys(pictures=len(self.train), batch=min(batch, len(self.train)))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            drawn = list(keys)[:count]
        return _loader(self.train, drawn, workers)

    def held_out_batches(
        self, *, batch: int, workers: int, rank: int = 0, learners: int = 1
    ) -> DataLoader[Any]:
        """This rank's part of the held-out pictures, all of them between the ranks."""
        numbers = range(rank, len(self.held_out), learners)
        parts = [list(numbers[at : at + batch]) for at in range(0, len(numbers), batch)]
        return _loader(self.held_out, parts, workers)


def _loader(pictures: Pictures, batches: Any, workers: int) -> DataLoader[Any]:
    return DataLoader(
        pictures,
        batch_sampler=batches,
        num_workers=min(workers, share_of_cores(1)),  # torch warns of more
        pin_memory=torch.cuda.is_available(),
    )
