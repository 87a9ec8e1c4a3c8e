"""Averages over the ranks of a group, bit for bit the same on every rank and in every run.

An allreduce's order of summation is the backend's secret. Here every rank receives its shard of
everybody's values, sums them in the order of the ranks and hands the mean out again: the bytes of
a ring allreduce, 2 (N-1)/N of the buffer sent by each rank, and an order that a replay can repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hadpsgd.decentralized.buffers import ALIGN, Flat

BUCKET_BYTES = 8 * 2**20
"""Gradients are exchanged in pieces of about this size, while the backward pass goes on."""


def mean_of(rows: Tensor | Sequence[Tensor], out: Tensor) -> None:
    """Mean of n tensors [elements] into `out` (not one of them), summed in their order."""
    if len(rows) == 1:
        out.copy_(rows[0])
        return
    torch.add(rows[0], rows[1], out=out)
    for row in rows[2:]:
        out.add_(row)
    out.div_(len(rows))


class Group:
    """One process group (None: a single rank, nothing to do)."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self.group = group
        self.size = dist.get_world_size(group) if group is not None else 1
        self.bytes_sent = 0

    def begin_gather(self, out: Tensor, shard: Tensor) -> dist.Work:
        """`gather`, to be waited for; groups of more than one only."""
        self.bytes_sent += shard.nbytes * (self.size - 1)
        work = dist.all_gather_single(out, shard, group=self.group, async_op=True)
        assert work is not None
        return work

    def gather(self, out: Tensor, shard: Tensor) -> None:
        """All ranks' shards, one after the other, into `out`."""
        if self.size == 1:
            if out.data_ptr() != shard.data_ptr():
                out.copy_(shard)
            return
        self.begin_gather(out, shard).wait()


class Averaging:
    """The mean of one buffer over a group, in place, again and again.

    `start`, `spread` and `wait` are its three parts; other work may go on between them. The
    buffer's length is a multiple of the group's size.
    """

    def __init__(self, group: Group, buffer: Tensor) -> None:
        self.group = group
        self.buffer = buffer
        self.rows = torch.empty_like(buffer).view(group.size, -1)
        """[group, elements / group]: after `start`, every rank's values of this rank's shard."""
        self._shard = torch.empty_like(self.rows[0])

    def start(self) -> None:
        """Begin to send every rank its shard."""
        self.group.bytes_sent += 2 * self.buffer.nbytes * (self.group.size - 1) // self.group.size
        self._work = dist.all_to_all_single(
            self.rows.view(-1), self.buffer, group=self.group.group, async_op=True
        )

    def spread(self) -> None:
        """Sum the own shard, begin to hand it out."""
        self._work.wait()
        mean_of(self.rows, self._shard)
        self._work = dist.all_gather_single(
            self.buffer, self._shard, group=self.group.group, async_op=True
        )

    def wait(self) -> None:
        """Until `buffer` holds the mean."""
        self._work.wait()

    def run(self) -> None:
        """All three."""
        if self.group.size > 1:
            self.start()
            self.spread()
            self.wait()


class Reducer:
    """Averages gradients over a group, beginning with those that backward finishes first."""

    def __init__(self, flat: Flat, group: Group, bucket_bytes: int = BUCKET_BYTES) -> None:
        self.group = group
        self.active = group.size > 1
        """Whether the next gradient is shared."""
        self._buckets: list[Averaging] = []
        self._owners: dict[nn.Parameter, list[int]] = {}
        self._missing: list[int] = []
        self._launched = 0
        if self.active:
            self._fill(flat, bucket_bytes)

    def _fill(self, flat: Flat, bucket_bytes: int) -> None:
        edges = _edges(flat, self.group.size, bucket_bytes)
        parts = [slice(a, b) for a, b in zip(edges[-2::-1], edges[:0:-1], strict=True)]
        self._buckets = [Averaging(self.group, flat.with_control[part]) for part in parts]
        offset = flat.control.numel()
        for slot in flat.slots:
            self._owners[slot.parameter] = [
                number
                for number, part in enumerate(parts)
                if part.start < slot.stop + offset and slot.start + offset < part.stop
            ]
            slot.parameter.register_post_accumulate_grad_hook(self._ready)
        self._reset()

    def finish(self, everybody_here: Callable[[], None] = lambda: None) -> None:
        """Wait until the buffer of gradient and control holds the mean over the group.

        `everybody_here` is called when all have brought their gradients.
        """
        if not self.active:
            return
        while self._launched < len(self._buckets):
            self._launch()
        for bucket in self._buckets:
            bucket.spread()
        everybody_here()
        for bucket in self._buckets:
            bucket.wait()
        self._reset()

    def culprits(self) -> list[int]:
        """Members of the group whose last gradient was not finite; every member must ask."""
        if not self.active:
            return [0]
        bad = torch.zeros(self.group.size)
        for bucket in self._buckets:
            bad += (~bucket.rows.isfinite().all(dim=1)).float().cpu()
        dist.all_reduce(bad, group=self.group.group)
        return bad.nonzero().flatten().tolist()

    def _ready(self, parameter: nn.Parameter) -> None:
        if not self.active:
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


def _edges(flat: Flat, size: int, bucket_bytes: int) -> Sequence[int]:
    """Ends of the buckets, multiples of size * ALIGN, from 0 to the storage's length."""
    unit = size * ALIGN
    length = flat.with_control.numel()
    per_bucket = max(unit, bucket_bytes // flat.with_control.element_size() // unit * unit)
    return [*range(0, length, per_bucket), length]
