"""Minibatches on their way to a device: from pinned memory, beside the work on those before."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from hadpsgd.egs.dataset import Batch
from hadpsgd.models.loss import IGNORE

Example = tuple[Tensor, Tensor]
"""Features [subsequences, frames, dim] and pdf-ids [subsequences, frames], padding IGNORE."""


class Sent:
    """A minibatch that was sent to a device."""

    def __init__(self, example: Example, arrival: torch.cuda.Event | None = None) -> None:
        self._example = example
        self._arrival = arrival

    def arrived(self) -> Example:
        """For this thread's stream, which waits for it; the host does not."""
        if self._arrival is not None:
            stream = torch.cuda.current_stream(self._example[0].device)
            self._arrival.wait(stream)
            for tensor in self._example:
                tensor.record_stream(stream)
        return self._example


class Sender:
    """Sends minibatches to one device; on a GPU by a stream of its own.

    Copies from pinned memory (`pinned`) are only asked for, so that they go on beside the kernels
    of the minibatch before.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device = device
        self.dtype = dtype
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    @property
    def beside(self) -> bool:
        """Whether a copy goes on beside other work."""
        return self._stream is not None

    def send(self, batch: Batch) -> Sent:
        """Any thread may call it."""
        if self._stream is None:
            return Sent(self._copied(batch))
        with torch.cuda.device(self.device), torch.cuda.stream(self._stream):
            example = self._copied(batch)
            return Sent(example, self._stream.record_event())

    def _copied(self, batch: Batch) -> Example:
        labels = torch.from_numpy(batch.labels).to(self.device, non_blocking=True).long()
        features = torch.from_numpy(batch.features)
        return (
            features.to(self.device, non_blocking=True).to(self.dtype),
            labels.masked_fill_(labels < 0, IGNORE),
        )


def pinned(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """An array that a GPU reads by itself; PyTorch keeps its memory for the next one."""
    kind = torch.from_numpy(np.empty(0, dtype)).dtype
    array: NDArray[Any] = torch.empty(shape, dtype=kind, pin_memory=True).numpy()
    return array
