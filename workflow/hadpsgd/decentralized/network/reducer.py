"""Averages of gradients that begin while the backward pass goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from hadpsgd.decentralized.core.buffers import ALIGN, Flat, Slot
from hadpsgd.decentralized.network.averaging import Averaging
from hadpsgd.decentralized.network.collectives import Group
from hadpsgd.decentralized.network.near import Neighbours
from hadpsgd.errors import UserError

BUCKET_BYTES = 8 * 2**20
"""Gradients are exchanged in pieces of about this size, while the backward pass goes on."""
APART_PIECES = 8
"""Between hosts in about so many at least: the link is slow, and the cores have time for it. On one
host more messages only cost the cores that compute (10 to 15 % of the steps with 3 MB)."""
PIECE_BYTES = 2**18
"""But a piece between hosts is not smaller."""


class Reducer:
    """Averages gradients over a group, beginning with those that backward finishes first.

    Args:
        flat: the module's buffers.
        group: who shares.
        backwards: so many backward passes add up to a gradient; fewer will do, too.
    """

    def __init__(self, flat: Flat, group: Group, *, backwards: int = 1) -> None:
        self.group = group
        self.backwards = backwards
        self.active = group.size > 1
        """Whether the next gradient is shared."""
        self._buckets: list[Averaging] = []
        self._owners: dict[Tensor, list[int]] = {}
        self._hooks: list[RemovableHandle] = []
        self._slots: dict[Tensor, Slot] = {}
        self._passes: Counter[Tensor] = Counter()
        """Backward passes that have reached a parameter."""
        self._flat = flat
        self._as_sent = 0
        """Changes of the gradient until the last one by backward or by the engine."""
        self._missing: list[int] = []
        self._launched = 0
        if self.active:
            self._fill(flat)

    def _fill(self, flat: Flat) -> None:
        edges = bucket_edges(flat, self.group.size, apart=self.group.apart)
        parts = [slice(a, b) for a, b in zip(edges[-2::-1], edges[:0:-1], strict=True)]
        near = Neighbours(self.group)
        self._buckets = [Averaging(self.group, flat.with_control[part], near) for part in parts]
        offset = flat.control.numel()
        for slot in flat.slots:
            self._owners[slot.parameter] = [
                number
                for number, part in enumerate(parts)
                if part.start < slot.stop + offset and slot.start + offset < part.stop
            ]
            self._slots[slot.parameter] = slot
            hook = slot.parameter.register_post_accumulate_grad_hook(self._ready)
            self._hooks.append(hook)
        self._reset()

    def finish(self, everybody_here: Callable[[], None] = lambda: None) -> None:
        """Wait until the buffer of gradient and control holds the mean over the group.

        `everybody_here` is called when all have brought their gradients.

        Raises:
            LostMemberError: a rank of the group is gone.
        """
        if not self.active:
            everybody_here()
            return
        while self._launched < len(self._buckets):
            self._launch()
        for bucket in self._buckets:
            bucket.spread()
        everybody_here()
        for bucket in self._buckets:
            bucket.wait()
        if self._buckets[0].buffer.is_cuda:
            # the gradient's norm is read next: wait here, so that the time counts as exposed
            torch.cuda.current_stream(self._buckets[0].buffer.device).synchronize()
        self._reset()

    def close(self) -> None:
        """Backward passes of the module share nothing any more."""
        for hook in self._hooks:
            hook.remove()

    def abandon(self) -> None:
        """The group is lost: nothing is shared from here on; backward may begin anew."""
        self.group.abandon()
        self.active = False
        self._reset()

    def culprits(self) -> list[int]:
        """Members of the group whose last gradient was not finite; every member must ask."""
        if not self.active:
            return [0]
        bad = torch.zeros(self.group.size, device=self._buckets[0].rows()[0].device)
        for bucket in self._buckets:
            bad += torch.stack([~row.isfinite().all() for row in bucket.rows()]).float()
        self.group.run(lambda: dist.all_reduce(bad, group=self.group.group))
        return bad.nonzero().flatten().tolist()

    def check(self) -> None:
        """Nobody may have changed gradients that are on their way already.

        Raises:
            UserError: somebody has.
        """
        if not self._launched:
            return
        buffer = self._flat.gradient
        taken_away = any(
            p.grad is None or p.grad.data_ptr() != slot.of(buffer).data_ptr()
            for p, slot in self._slots.items()
            if p in self._passes and self._flat.is_view(slot)
        )
        if taken_away or buffer._version != self._as_sent:
            raise UserError(
                "gradients were changed after backward, but they are shared while it runs",
                fix="To limit their norm, give clip_norm to decentralize()",
            )

    def collected(self) -> None:
        """What changed the gradient since `check` was the engine: statistics were added to it."""
        self._as_sent = self._flat.gradient._version

    def _ready(self, parameter: Tensor) -> None:
        if not self.active:
            return
        self._passes[parameter] += 1
        if self._passes[parameter] > self.backwards:
            raise UserError(
                f"a gradient is made of {self.backwards} backward passes, and here is another",
                fix="Give their number to decentralize(backwards=...)",
            )
        with torch.no_grad():
            self._flat.attach(self._slots[parameter])
        self._as_sent = self._flat.gradient._version
        if self._passes[parameter] < self.backwards:
            return
        for number in self._owners[parameter]:
            self._missing[number] -= 1
        # all ranks launch in one order; the last bucket waits for `finish`: it holds control
        while self._launched < len(self._buckets) - 1 and not self._missing[self._launched]:
            self._launch()

    def _launch(self) -> None:
        self._buckets[self._launched].start()
        self._launched += 1

    def _reset(self) -> None:
        self._missing = [0] * len(self._buckets)
        for numbers in self._owners.values():
            for number in numbers:
                self._missing[number] += 1
        self._launched = 0
        self._passes.clear()


def bucket_edges(flat: Flat, size: int, *, apart: bool) -> Sequence[int]:
    """Ends of the buckets in the storage, multiples of size * ALIGN, from 0 to its length.

    The backward pass goes from the last parameters to the first. A bucket begins where a parameter
    does, so as not to wait for a piece of the one before; what is too long is divided.
    """
    unit = size * ALIGN
    length, offset = flat.with_control.numel(), flat.control.numel()
    largest = BUCKET_BYTES // flat.with_control.element_size()
    wanted = largest
    if apart:
        smallest = PIECE_BYTES // flat.with_control.element_size()
        wanted = min(largest, max(smallest, length // APART_PIECES))
    edges = [length]
    for slot in reversed(flat.slots):
        start = -(-(slot.start + offset) // unit) * unit if slot.start else 0
        while edges[-1] - start > 2 * largest:
            edges.append((edges[-1] - largest) // unit * unit)
        if start == 0 or edges[-1] - start >= wanted:
            edges.append(start)
    if edges[-1]:  # statistics lie before the first parameter
        edges.append(0)
    return edges[::-1]
