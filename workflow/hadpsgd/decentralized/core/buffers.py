"""All parameters of a module in one flat buffer, and all gradients in another.

Parameters and their gradients become views: forward and backward work on the buffers, and so do
the update, the exchange and the checkpoint, without copies. (Parameters of another type than the
rest are copied.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from hadpsgd.errors import UserError

ALIGN = 16
"""Parameters begin at multiples of this many elements (64 bytes in fp32)."""


@dataclass(frozen=True)
class Slot:
    """Where a parameter (or a statistic) lies in the buffers."""

    parameter: Tensor
    start: int
    strides: tuple[int, ...] | None = None
    """In which order its elements lie, where not that of its shape (`channels_last`)."""

    @property
    def stop(self) -> int:
        """One past its last element."""
        return self.start + self.parameter.numel()

    def of(self, buffer: Tensor) -> Tensor:
        """Its part of a buffer, in its shape."""
        return self.shaped(buffer[self.start : self.stop])

    def shaped(self, part: Tensor) -> Tensor:
        """As many elements, in its shape."""
        if self.strides is None:
            return part.view(self.parameter.shape)
        return part.as_strided(self.parameter.shape, self.strides)


@dataclass(frozen=True)
class Flat:
    """Flat buffers of a module's parameters; gaps of the alignment are zero in both and stay so.

    `control` lies just before the gradients in one storage, so that a few numbers can travel with
    the first parameters' gradients in one collective.

    Statistics (the running means and variances of normalisation layers) come before the parameters.
    They have no gradient: in its place is what the forward passes added to them.

    A parameter of another type than the buffer's keeps a storage of its own, a rounded copy.
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
    attached: bool = False
    """Whether it is these buffers that a module's backward fills."""
    statistics: Sequence[Slot] = ()
    """Statistics in the order of the buffer."""
    first: int = 0
    """Element where the parameters begin, after the statistics."""

    @property
    def elements(self) -> int:
        """Length of the buffers, gaps included."""
        return self.weights.numel()

    @property
    def learnt(self) -> slice:
        """The part of the buffers that has gradients."""
        return slice(self.first, None)

    @property
    def layout(self) -> list[tuple[int, ...]]:
        """Where parameters and statistics begin, with their shapes; LSTMs lie otherwise on GPUs."""
        slots = (*self.statistics, *self.slots)
        return [(s.start, *s.parameter.shape, *(s.strides or ())) for s in slots]

    def is_view(self, slot: Slot) -> bool:
        """Whether the module's tensor is a part of the buffer, not a copy of another type."""
        return slot.parameter.dtype == self.weights.dtype

    def point_to(self, weights: Tensor) -> None:
        """Make the module's parameters and statistics views of another buffer of weights."""
        for slot in (*self.slots, *self.statistics):
            if self.is_view(slot):
                slot.parameter.data = slot.of(weights)
        self.show(weights)

    def show(self, weights: Tensor) -> None:
        """Bring copies of another type up to date with the buffer of weights."""
        for slot in (*self.slots, *self.statistics):
            if not self.is_view(slot):
                slot.parameter.data.copy_(slot.of(weights))

    def attach(self, slot: Slot) -> None:
        """Bring a parameter's gradient into the buffer; a view of it becomes `grad`.

        `zero_grad(set_to_none=True)` takes the view away: backward then makes a tensor of its own.

        Raises:
            UserError: the gradient is sparse.
        """
        view, found = slot.of(self.gradient), slot.parameter.grad
        if found is None:
            view.zero_()
        elif found.layout != torch.strided:
            raise UserError(
                "a gradient is sparse",
                fix="Make its layer with sparse=False: weights are mixed whole",
            )
        elif found.data_ptr() != view.data_ptr():
            view.copy_(found)
        if self.is_view(slot):
            slot.parameter.grad = view

    def collect(self) -> None:
        """Bring all gradients of the module into the buffer."""
        for slot in self.slots if self.attached else ():
            self.attach(slot)

    def clear(self) -> None:
        """Zero the gradient, whoever holds it."""
        self.gradient.zero_()
        for slot in self.slots if self.attached else ():
            if not self.is_view(slot):
                slot.parameter.grad = None

    def another(self, *, own_gradient: bool = False) -> Flat:
        """Buffers of another learner with the same weights, for one process that holds many.

        The gradient's are shared unless `own_gradient`.
        """
        storage = self.with_control.clone() if own_gradient else self.with_control
        unit = self.control.numel()
        return replace(
            self,
            weights=self.weights.clone(),
            gradient=storage[unit:],
            control=storage[:unit],
            with_control=storage,
            attached=False,
        )


def flatten(module: nn.Module, *, shards: int = 1) -> Flat:
    """Move a module's parameters into one buffer; its length is a multiple of `shards` * ALIGN.

    The module must be on its device already: `module.to` would tear the views apart. Parameters
    that share a storage keep their places in it (cuDNN's packed LSTM weights are used in place
    only if they begin a storage, so such a block comes first). Frozen parameters stay where they
    are. The buffer is of double precision if a parameter is, else of single: parameters of less
    (bfloat16) are mixed and summed in it.

    Raises:
        ValueError: no parameters, more than one device among them, or complex numbers.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    statistics = statistics_of(module)
    devices = {tensor.device for tensor in (*parameters, *statistics)}
    if not parameters:
        raise ValueError("no parameters to learn")
    if len(devices) != 1:
        names = ", ".join(sorted(map(str, devices)))
        raise ValueError(f"parameters must be on one device, not on {names}")
    if not all(p.dtype.is_floating_point for p in parameters):
        raise ValueError("complex parameters cannot be mixed")
    double = any(tensor.dtype == torch.float64 for tensor in (*parameters, *statistics))
    device, dtype = devices.pop(), torch.float64 if double else torch.float32
    before, begin = _layout(statistics, dtype)
    begin = -(-begin // ALIGN) * ALIGN
    slots, elements = _layout(parameters, dtype, begin)
    unit = shards * ALIGN
    elements = -(-elements // unit) * unit
    weights = torch.zeros(elements, dtype=dtype, device=device)
    storage = torch.zeros(unit + elements, dtype=dtype, device=device)
    gradient = storage[unit:]
    flat = Flat(
        weights,
        gradient,
        storage[:unit],
        storage,
        slots,
        statistics=before,
        first=begin,
        attached=True,
    )
    with torch.no_grad():
        for slot in (*before, *slots):
            slot.of(weights).copy_(slot.parameter)
        flat.point_to(weights)
        for slot in slots:
            slot.parameter.grad = None
            flat.attach(slot)
    return flat


def statistics_of(module: nn.Module) -> list[Tensor]:
    """Running means and variances of normalisation layers; other buffers stay each learner's own.

    (They may be constants, or hold infinite numbers, as masks do.)
    """
    layers = [layer for layer in module.modules() if isinstance(layer, _NormBase)]
    found = [b for layer in layers for b in (layer.running_mean, layer.running_var)]
    return list({id(b): b for b in found if b is not None and b.is_floating_point()}.values())


def _layout(
    parameters: Sequence[Tensor], dtype: torch.dtype, end: int = 0
) -> tuple[list[Slot], int]:
    """Slots from `end` on, by storage, the largest shared storage first; where they end.

    Those of another type than `dtype` do not lie in the buffer, so their storages do not matter.
    """
    blocks: dict[int, list[Tensor]] = {}
    for p in parameters:
        place = p.untyped_storage().data_ptr() if p.dtype == dtype else -id(p)
        blocks.setdefault(place, []).append(p)
    shared = [block for block in blocks.values() if len(block) > 1]
    shared.sort(key=lambda block: -sum(p.numel() for p in block))
    alone = [block for block in blocks.values() if len(block) == 1]
    slots: list[Slot] = []
    for block in [*shared, *alone]:
        start = -(-end // ALIGN) * ALIGN
        base = min(p.storage_offset() for p in block)
        slots += [Slot(p, start + int(p.storage_offset() - base), _strides(p)) for p in block]
        end = max(slot.stop for slot in slots)
    slots.sort(key=lambda slot: slot.start)
    return slots, end


def _strides(tensor: Tensor) -> tuple[int, ...] | None:
    """Of a tensor without gaps whose elements lie in another order than its shape's."""
    if tensor.is_contiguous():
        return None
    wanted = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride != wanted:
            return None  # a part of a larger one
        wanted *= size
    return tensor.stride()
