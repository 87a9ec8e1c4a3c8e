"""Inputs put together on a GPU, of examples as they lie on disk.

As `Layout.inputs` does it on processors. Of the papers' input in 8 bits a tenth of the bytes is
copied to the GPU (no deltas; a third with an i-vector for every frame), and the reading thread
leaves Python's lock to the training more often.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hadpsgd.egs.dataset import Dataset, Stored
from hadpsgd.egs.layout import INT8, LABELS, Part
from hadpsgd.models.loss import IGNORE
from hadpsgd.training.staging import Example, asked


class Unpacker:
    """Of one data set's rows."""

    def __init__(self, dataset: Dataset, device: torch.device, dtype: torch.dtype) -> None:
        self.layout = dataset.layout
        self.device = device
        self.dtype = dtype
        self._scales = None
        if self.layout.dtype == INT8:
            assert dataset.scales is not None
            self._scales = torch.from_numpy(dataset.scales).to(device)
        # deltas are sums in float64, which TF32 does not touch
        self._filters = {
            stream: torch.from_numpy(matrix).to(device, torch.float64)
            for stream, matrix in self.layout.filters.items()
        }

    def __call__(self, stored: Stored) -> Example:
        """Features and pdf-ids, by this thread's stream; the host does not wait."""
        raw = asked(stored.rows, self.device)
        scales = None
        if self._scales is not None:
            scales = self._scales[asked(stored.shards, self.device)]
        labels = self._field(raw, LABELS)
        out = torch.empty(*labels.shape, self.layout.dim, dtype=self.dtype, device=self.device)
        first = 0
        for part in self.layout.parts:
            target = out[:, :, first : first + part.width]
            first += part.width
            if part.table:
                target.copy_(asked(stored.vectors[part.stream], self.device))
            else:
                self._fill(target, part, self._static(raw, part.stream, scales))
        padded = labels < 0
        out.masked_fill_(padded[:, :, None], 0.0)
        return out, labels.long().masked_fill_(padded, IGNORE)

    def _static(self, raw: Tensor, stream: str, scales: Tensor | None) -> Tensor:
        """As `Layout.static`."""
        values = self._field(raw, stream).float()
        if scales is None:
            return values
        of_stream = scales[:, :, self.layout.columns[stream]]
        return values.mul_(of_stream[:, 1, None]).add_(of_stream[:, 0, None])

    def _fill(self, target: Tensor, part: Part, static: Tensor) -> None:
        frames = self.layout.frames
        target[:, :, : part.dim] = static[:, part.reach : part.reach + frames]
        if part.order:
            deltas = torch.matmul(self._filters[part.stream], static.double())
            by_order = deltas.view(-1, part.order, frames, part.dim).transpose(1, 2)
            target[:, :, part.dim :] = by_order.reshape(-1, frames, part.order * part.dim)

    def _field(self, raw: Tensor, name: str) -> Tensor:
        """A field of rows [n, bytes], [n, ...]."""
        kind, offset = self.layout.row.fields[name][:2]  # type: ignore[index]
        base, shape = kind.subdtype or (kind, ())
        # a copy in any case: of one row a part is contiguous, but not where its type may begin
        found = raw[:, offset : offset + kind.itemsize].clone(memory_format=torch.contiguous_format)
        return found.view(torch.from_numpy(np.empty(0, base)).dtype).view(-1, *shape)
