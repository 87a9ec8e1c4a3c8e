"""Weights rounded for their way: a half or a quarter of the bytes, and nothing is lost for good.

What rounding takes from a message is kept and added to the next one (error feedback: Seide et al.
2014; arXiv 1901.09847), so what a learner sends is right in the mean of its messages. It mixes with
what it sent, not with what it has: what one side gains the other loses, and the learners' mean is
kept as it is without rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor
from typing_extensions import override

BLOCK = 16
"""Values that share an exponent: parameters begin at multiples of it, and so do shards."""
BITS = 7
"""Of a whole number in -127 ... 127."""
LOWEST, HIGHEST = -120, 119
"""Exponents of the last bit; their powers of two are normal in single precision."""
CHUNK = 2**18
"""Values that are rounded at once, so that what is made on the way stays in a core's cache."""


class Rounding(Protocol):
    """How values become bytes; equal values become equal bytes everywhere."""

    def nbytes(self, elements: int) -> int:
        """Of a message."""

    def encode(self, values: Tensor, message: Tensor) -> None:
        """values [elements] to message [nbytes], uint8."""

    def decode(self, message: Tensor, out: Tensor) -> None:
        """The other way, to `out` [elements] of any type."""


class Bfloat16(Rounding):
    """Eight bits of each value's fraction."""

    @override
    def nbytes(self, elements: int) -> int:
        """Two for each."""
        return 2 * elements

    @override
    def encode(self, values: Tensor, message: Tensor) -> None:
        """To the nearest, ties to even."""
        message.view(torch.bfloat16).copy_(values)

    @override
    def decode(self, message: Tensor, out: Tensor) -> None:
        """Exact."""
        out.copy_(message.view(torch.bfloat16))


class Int8(Rounding):
    """Whole numbers times a power of two, which a block of values shares.

    A message has the blocks' exponents first, then the numbers. Powers of two make products exact.
    """

    @override
    def nbytes(self, elements: int) -> int:
        """One for each value, one for each block."""
        return elements + elements // BLOCK

    @override
    def encode(self, values: Tensor, message: Tensor) -> None:
        """To the nearest, ties to even; the largest of a block may be one short."""
        shares, numbers = _parts(message, len(values))
        powers = _powers(values)
        for begin in range(0, len(values), CHUNK):
            rows = values[begin : begin + CHUNK].view(-1, BLOCK)
            exponents = torch.frexp(rows.abs().amax(1)).exponent.sub_(BITS)
            exponents.clamp_(LOWEST, HIGHEST)
            shares[begin // BLOCK :][: len(rows)].copy_(exponents)
            scaled = rows * powers[-exponents.long()].unsqueeze(1)
            scaled.round_().clamp_(-127, 127)
            numbers[begin : begin + CHUNK].view(-1, BLOCK).copy_(scaled)

    @override
    def decode(self, message: Tensor, out: Tensor) -> None:
        """Exact."""
        shares, numbers = _parts(message, len(out))
        powers = _powers(out)
        for begin in range(0, len(out), CHUNK):
            rows = out[begin : begin + CHUNK].view(-1, BLOCK)
            rows.copy_(numbers[begin : begin + CHUNK].view(-1, BLOCK))
            exponents = shares[begin // BLOCK :][: len(rows)]
            rows.mul_(powers[exponents.long()].unsqueeze(1))


ROUNDINGS: Mapping[str, Rounding | None] = {
    "float32": None,
    "bfloat16": Bfloat16(),
    "int8": Int8(),
}
"""By the name that the config has for it; None: as the weights are."""


def message_like(weights: Tensor, rounding: Rounding | None) -> Tensor:
    """A buffer for a message of `weights`, on their device."""
    if rounding is None:
        return torch.empty_like(weights)
    return torch.empty(rounding.nbytes(len(weights)), dtype=torch.uint8, device=weights.device)


class Sender:
    """What one learner (or member, of its shard) sends, and what it owes from the last time.

    A message counts when it is mixed in: one that is not (the partner died) leaves no trace.

    Args:
        like: a tensor as its weights [elements].
    """

    def __init__(self, rounding: Rounding, like: Tensor) -> None:
        self.rounding = rounding
        self.owed = torch.zeros_like(like)
        self._next = torch.zeros_like(like)

    def send(self, weights: Tensor, message: Tensor) -> None:
        """Fill `message`; `weights` become what it says."""
        torch.add(weights, self.owed, out=self._next)
        self.rounding.encode(self._next, message)
        self.rounding.decode(message, weights)
        self._next.sub_(weights)

    def count(self) -> None:
        """The last message was mixed in."""
        self.owed, self._next = self._next, self.owed

    def forget(self) -> None:
        """Begin anew."""
        self.owed.zero_()


def _parts(message: Tensor, elements: int) -> tuple[Tensor, Tensor]:
    """Exponents [elements / BLOCK] and numbers [elements] of a message, int8."""
    blocks = elements // BLOCK
    whole = message.view(torch.int8)
    return whole[:blocks], whole[blocks : blocks + elements]


def _powers(like: Tensor) -> Tensor:
    """2^k at place k, for -128 <= k <= 127 (negative places count from the end)."""
    exponents = [*range(128), *range(-128, 0)]
    values = [math.ldexp(1.0, max(min(k, 127), -126)) for k in exponents]
    return torch.tensor(values, dtype=like.dtype, device=like.device)
