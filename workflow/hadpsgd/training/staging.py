"""Minibatches on their way to a device: beside the work on those before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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
    """Sends minibatches to one device; to a GPU by a stream of its own.

    Copies from pinned memory (`pinned`) are only asked for, so that they and what is made of them
    go on beside the kernels of the minibatch before.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def send(self, make: Callable[[], Example]) -> Sent:
        """What `make` makes on the device; any thread may call it."""
        if self._stream is None:
            return Sent(make())
        with torch.cuda.device(self.device), torch.cuda.stream(self._stream):
            example = make()
            return Sent(example, self._stream.record_event())


def pinned(*shape: int) -> NDArray[np.uint8]:
    """Bytes that a GPU reads by itself; PyTorch keeps their memory for the next minibatch."""
    array: NDArray[np.uint8] = torch.empty(shape, dtype=torch.uint8, pin_memory=True).numpy()
    return array


def asked(values: NDArray[Any], device: torch.device) -> Tensor:
    """A copy on the device that is asked for and not waited for."""
    tensor = torch.from_numpy(values)
    if device.type == "cuda" and not tensor.is_pinned():
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
