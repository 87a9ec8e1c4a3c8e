"""All parameters of a module in one flat buffer, and all gradients in another.

Parameters and their gradients become views: forward and backward work on the buffers, and so do
the update, the exchange and the checkpoint, without copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

ALIGN = 16
"""Parameters begin at multiples of this many elements (64 bytes in fp32)."""


@dataclass(frozen=True)
class Slot:
    """Where a parameter lies in the buffers."""

    parameter: nn.Parameter
    start: int

    @property
    def stop(self) -> int:
        """One past its last element."""
        return self.start + self.parameter.numel()


@dataclass(frozen=True)
class Flat:
    """Flat buffers of a module's parameters; gaps of the alignment are zero in both and stay so.

    `control` lies just before the gradients in one storage, so that a few numbers can travel with
    the first parameters' gradients in one collective.
    """

    weights: Tensor
    """[elements]"""
    gradient: Tensor
    """[elements]"""
    control: Tensor
    """[control elements]"""
    with_control: Tensor
    """[control + elements]: the storage of `control` and `gradient`."""
    slots: Sequence[Slot]
    """Parameters in the order of the buffer."""

    @property
    def elements(self) -> int:
        """Length of the buffers, gaps included."""
        return self.weights.numel()

    def point_to(self, weights: Tensor) -> None:
        """Make the module's parameters views of another buffer of weights."""
        for slot in self.slots:
            slot.parameter.data = weights[slot.start : slot.stop].view(slot.parameter.shape)

    def another(self, *, own_gradient: bool = False) -> Flat:
        """Buffers of another learner with the same weights, for one process that holds many.

        The gradient's are shared unless `own_gradient`.
        """
        storage = self.with_control.clone() if own_gradient else self.with_control
        unit = self.control.numel()
        return Flat(self.weights.clone(), storage[unit:], storage[:unit], storage, self.slots)


def flatten(module: nn.Module, *, shards: int = 1) -> Flat:
    """Move a module's parameters into one buffer; its length is a multiple of `shards` * ALIGN.

    The module must be on its device already: `module.to` would tear the views apart. Parameters
    that share a storage keep their places in it (cuDNN's packed LSTM weights are used in place
    only if they begin a storage, so such a block comes first).

    Raises:
        ValueError: no parameters, or more than one type or device among them.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    kinds = {(p.dtype, p.device) for p in parameters}
    if len(kinds) != 1:
        raise ValueError(f"parameters must be of one type and on one device, not {kinds or 'none'}")
    dtype, device = kinds.pop()
    slots, elements = _layout(parameters)
    unit = shards * ALIGN
    elements = -(-elements // unit) * unit
    weights = torch.zeros(elements, dtype=dtype, device=device)
    storage = torch.zeros(unit + elements, dtype=dtype, device=device)
    gradient = storage[unit:]
    with torch.no_grad():
        for slot in slots:
            p = slot.parameter
            view = weights[slot.start : slot.stop].view(p.shape)
            view.copy_(p)
            p.data = view
            p.grad = gradient[slot.start : slot.stop].view(p.shape)
    return Flat(weights, gradient, storage[:unit], storage, slots)


def _layout(parameters: Sequence[nn.Parameter]) -> tuple[list[Slot], int]:
    """Slots by storage, the largest shared storage first; and the elements they span."""
    blocks: dict[int, list[nn.Parameter]] = {}
    for p in parameters:
        blocks.setdefault(p.untyped_storage().data_ptr(), []).append(p)
    shared = [block for block in blocks.values() if len(block) > 1]
    shared.sort(key=lambda block: -sum(p.numel() for p in block))
    alone = [block for block in blocks.values() if len(block) == 1]
    slots: list[Slot] = []
    end = 0
    for block in [*shared, *alone]:
        start = -(-end // ALIGN) * ALIGN
        base = min(p.storage_offset() for p in block)
        slots += [Slot(p, start + int(p.storage_offset() - base)) for p in block]
        end = max(slot.stop for slot in slots)
    slots.sort(key=lambda slot: slot.start)
    return slots, end
