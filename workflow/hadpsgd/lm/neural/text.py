"""Sentences as numbers in files that are mapped into memory, and batches of them.

A batch has sentences of about equal length. Which they are is drawn anew every epoch among those
of one length, in an order of torch's random numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from hadpsgd.files import atomic_folder
from hadpsgd.lm.neural.words import BEGIN, END

PADDED = -100
"""Target that counts for nothing (that of torch's cross-entropy)."""
USUAL = 64
"""Words of a sentence up to which a batch has as many as it should; of longer ones it has fewer."""
_NUMBERS, _FIRST = "numbers.bin", "first.bin"


def write(folder: Path, sentences: Iterable[Sequence[int]]) -> int:
    """Write the numbers of sentences' words; how many sentences there are."""
    count = place = 0
    with (
        atomic_folder(folder) as temporary,
        (temporary / _NUMBERS).open("wb") as numbers,
        (temporary / _FIRST).open("wb") as first,
    ):
        first.write(np.int64(0).tobytes())
        for sentence in sentences:
            numbers.write(np.asarray(sentence, np.int32).tobytes())
            place += len(sentence)
            first.write(np.int64(place).tobytes())
            count += 1
    return count


class Text(Dataset[Tensor]):
    """What `write` wrote: int64 [words + 2], a sentence with its beginning and end."""

    def __init__(self, folder: Path) -> None:
        self.first = np.fromfile(folder / _FIRST, np.int64)
        size = int(self.first[-1])
        # an empty file cannot be mapped: a text may have empty sentences alone
        self._numbers = (
            np.memmap(folder / _NUMBERS, np.int32, "r") if size else np.zeros(0, np.int32)
        )

    def __len__(self) -> int:
        """Sentences."""
        return len(self.first) - 1

    def __getitem__(self, number: int) -> Tensor:
        words = self._numbers[self.first[number] : self.first[number + 1]]
        return torch.from_numpy(np.concatenate([[BEGIN], words, [END]]).astype(np.int64))

    @property
    def events(self) -> int:
        """Words and ends of sentences, which are to be predicted."""
        return int(self.first[-1]) + len(self)

    def batches(self, size: int) -> DataLoader[Any]:
        """All of it in batches of up to so many sentences, in another order every time."""
        order = ByLength(np.diff(self.first), size)
        return DataLoader(self, batch_sampler=order, collate_fn=padded)


class ByLength(Sampler[list[int]]):
    """Batches of sentences of about equal length; equally many batches every time."""

    def __init__(self, lengths: NDArray[np.int64], size: int) -> None:
        self._lengths = lengths
        self._bounds = _bounds(np.sort(lengths), size)

    def __len__(self) -> int:
        """Batches."""
        return len(self._bounds) - 1

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(len(self._lengths)).numpy()
        order = order[np.argsort(self._lengths[order], kind="stable")]
        for batch in torch.randperm(len(self)).tolist():
            yield order[self._bounds[batch] : self._bounds[batch + 1]].tolist()


def _bounds(lengths: NDArray[np.int64], size: int) -> list[int]:
    """Where batches of sentences of rising length begin, and the end of the last."""
    bounds = [0]
    while bounds[-1] < len(lengths):
        begin = bounds[-1]
        end = min(begin + size, len(lengths))
        while end - begin > 1 and (end - begin) * (lengths[end - 1] + 1) > size * USUAL:
            end -= 1
        bounds.append(end)
    return bounds


def padded(sentences: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Inputs and targets, int64 [sentences, longest - 1] each: the words and those after them."""
    whole = torch.nn.utils.rnn.pad_sequence(list(sentences), batch_first=True, padding_value=PADDED)
    inputs, targets = whole[:, :-1], whole[:, 1:]
    return inputs.clamp(min=BEGIN), targets
