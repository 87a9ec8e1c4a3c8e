"""Read examples: shuffled by a seed, shared out among learners, without the corpus in RAM.

Rows are read with positioned reads rather than through a memory map: a learner's resident memory
then stays the size of its batches (a map counts every page it touched), and a read releases the
interpreter lock, so that the next batch is gathered while the model trains.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from hadpsgd.egs.shards import FORMAT
from hadpsgd.egs.shuffle import Permutation
from hadpsgd.errors import UserError

_OPEN_SHARDS = 256
_AGAIN = "Run `hadpsgd egs` again"


Change = Callable[[NDArray[np.float32], NDArray[np.int64]], None]
"""Changes features [n, frames, dim] of the examples of these numbers [n] in place."""


@dataclass(frozen=True)
class Batch:
    """One learner's part of a step."""

    step: int
    """Step within the epoch."""
    features: NDArray[np.float32]
    """[subsequences, frames, dim]."""
    labels: NDArray[np.int32]
    """[subsequences, frames] of pdf-ids; -1 is padding."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Which subsequences are trained on in which step, and by whom.

    An epoch is a permutation of all subsequences, cut into steps whose sizes differ by at most
    one and do not exceed `batch`, each cut among the learners likewise. So every subsequence is
    seen exactly once an epoch, no step is a small rest, and the global batch of a step does not
    depend on the number of learners.
    """

    size: int
    """Subsequences."""
    batch: int
    """Subsequences of a step, over all learners."""
    seed: int

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return -(-self.size // self.batch)

    def part(self, *, epoch: int, step: int, rank: int = 0, learners: int = 1) -> NDArray[np.int64]:
        """Subsequences of one learner in one step, sorted."""
        start, stop = (self.size * s // self.steps for s in (step, step + 1))
        first, last = (start + (stop - start) * r // learners for r in (rank, rank + 1))
        order = Permutation(self.size, self.seed, epoch)
        return np.sort(order(np.arange(first, last)))


class Dataset:
    """Examples made by `hadpsgd egs`."""

    def __init__(self, folder: Path) -> None:
        """Read meta.json and the headers of all shards.

        Raises:
            UserError: no examples here, or a file is missing, truncated or of another shape.
        """
        self.folder = Path(folder)
        self.meta = _read_meta(self.folder / "meta.json")
        self.frames: int = self.meta["frames"]
        self.dim: int = self.meta["dim"]
        self.num_pdfs: int = self.meta["num_pdfs"]
        self.streams: dict[str, int] = self.meta["streams"]
        self.bins: int = self.meta.get("bins", 0)
        """Mel bins of the stream logmel; 0 where it is not there."""
        self.pdf_counts = _read_counts(self.folder / "pdf_counts.npy", self.num_pdfs)
        dtype = np.dtype(self.meta["dtype"])
        shards = self.meta["shards"]
        counts = [shard["subsequences"] for shard in shards]
        shape = (self.frames, self.dim)
        self._features = _Rows([self.folder / s["features"] for s in shards], counts, shape, dtype)
        labels = [self.folder / shard["labels"] for shard in shards]
        self._labels = _Rows(labels, counts, shape[:1], np.dtype(np.int32))

    def __len__(self) -> int:
        """Subsequences."""
        return self.meta["subsequences"]

    def verify(self, *, rank: int = 0, learners: int = 1) -> None:
        """Compare the checksums of all shards, or of one learner's share of them.

        Raises:
            UserError: a shard's content is not what was written; names it.
        """
        shards = list(enumerate(self.meta["shards"]))
        for number, shard in shards[rank::learners]:
            self._features.verify(number, shard["features_sha256"])
            self._labels.verify(number, shard["labels_sha256"])

    def gather(self, indices: NDArray[np.integer]) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """Features [n, frames, dim] and labels [n, frames] of subsequences; fastest if sorted.

        Raises:
            UserError: a shard was cut or removed meanwhile.
        """
        features = self._features.read(indices)
        return features.astype(np.float32, copy=False), self._labels.read(indices)

    def batches(
        self, plan: Plan, *, epoch: int, rank: int = 0, learners: int = 1, start: int = 0,
        ahead: int = 2, change: Change | None = None,
    ) -> Iterator[Batch]:  # fmt: skip
        """A learner's batches of an epoch from step `start` on.

        (epoch, step) is all there is to a position: the same pair gives the same batch. A
        thread reads `ahead` batches before they are asked for, and changes them.

        Raises:
            UserError: fewer subsequences in a step than learners.
        """
        if plan.size // plan.steps < learners:
            raise UserError(
                f"{plan.size} subsequences in {plan.steps} steps are too few for "
                f"{learners} learners",
                where=self.folder,
                fix="Train with fewer learners, a larger batch or more data",
            )
        parts = (
            plan.part(epoch=epoch, step=step, rank=rank, learners=learners)
            for step in range(start, plan.steps)
        )
        yield from self._read_ahead(parts, start, ahead, change)

    def in_order(self, batch: int, *, ahead: int = 2) -> Iterator[Batch]:
        """All subsequences as they are stored (evaluation)."""
        ends = range(0, len(self), batch)
        parts = (np.arange(first, min(first + batch, len(self))) for first in ends)
        yield from self._read_ahead(parts, 0, ahead, None)

    def _read_ahead(
        self,
        parts: Iterator[NDArray[np.int64]],
        start: int,
        ahead: int,
        change: Change | None,
    ) -> Iterator[Batch]:
        with ThreadPoolExecutor(1, "egs") as pool:
            waiting: deque[Future[Batch]] = deque()
            for step, part in enumerate(parts, start):
                waiting.append(pool.submit(self.batch, step, part, change))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    def batch(self, step: int, indices: NDArray[np.int64], change: Change | None = None) -> Batch:
        """These subsequences as the batch of a step."""
        features, labels = self.gather(indices)
        if change is not None:
            change(features, indices)
        return Batch(step, features, labels)


def _read_meta(path: Path) -> dict[str, Any]:
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError("no examples here", where=path.parent, fix=_AGAIN) from None
    except ValueError:
        raise UserError("not JSON", where=path, fix=_AGAIN) from None
    if meta.get("format") != FORMAT:
        raise UserError(f"examples of format {meta.get('format')}", where=path, fix=_AGAIN)
    return meta


def _read_counts(path: Path, pdfs: int) -> NDArray[np.int64]:
    try:
        counts: NDArray[np.int64] = np.load(path)
    except (OSError, EOFError, ValueError):
        raise UserError("cannot be read", where=path, fix=_AGAIN) from None
    if counts.shape != (pdfs,):
        raise UserError(f"shape {counts.shape} instead of ({pdfs},)", where=path, fix=_AGAIN)
    return counts


class _Rows:
    """Rows of arrays of one shape that lie one after another in .npy files."""

    def __init__(
        self, paths: list[Path], counts: list[int], shape: tuple[int, ...], dtype: np.dtype
    ) -> None:
        self._paths, self._shape, self._dtype = paths, shape, dtype
        self._row_bytes = int(np.prod(shape)) * dtype.itemsize
        self._firsts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self._starts = [self._check(path, count) for path, count in zip(paths, counts, strict=True)]
        self._open: OrderedDict[int, int] = OrderedDict()
        self._lock = threading.Lock()

    def _check(self, path: Path, count: int) -> int:
        """Compare header and size; returns where the data begins."""
        try:
            with path.open("rb") as file:
                npy.read_magic(file)
                shape, _, dtype = npy.read_array_header_1_0(file)
                start, size = file.tell(), os.fstat(file.fileno()).st_size
        except FileNotFoundError:
            raise UserError("missing shard", where=path, fix=_AGAIN) from None
        except ValueError:
            raise UserError("not a shard: its header is broken", where=path, fix=_AGAIN) from None
        if shape != (count, *self._shape) or dtype != self._dtype:
            raise UserError(
                f"{dtype} {shape}, and meta.json says {self._dtype} {(count, *self._shape)}",
                where=path,
                fix=_AGAIN,
            )
        if size != start + count * self._row_bytes:
            raise UserError(
                f"truncated shard: {size} bytes instead of {start + count * self._row_bytes}",
                where=path,
                fix=_AGAIN,
            )
        return start

    def verify(self, number: int, checksum: str) -> None:
        digest = hashlib.sha256()
        with self._paths[number].open("rb") as file:
            file.seek(self._starts[number])
            while block := file.read(1 << 22):
                digest.update(block)
        if digest.hexdigest() != checksum:
            raise UserError(
                "damaged shard: its checksum is not that of meta.json",
                where=self._paths[number],
                fix=_AGAIN,
            )

    def _descriptor(self, shard: int) -> int:
        if shard in self._open:
            self._open.move_to_end(shard)
            return self._open[shard]
        if len(self._open) >= _OPEN_SHARDS:
            os.close(self._open.popitem(last=False)[1])
        self._open[shard] = os.open(self._paths[shard], os.O_RDONLY)
        return self._open[shard]

    def read(self, indices: NDArray[np.integer]) -> NDArray[Any]:
        """Rows [n, *shape]."""
        with self._lock:  # two readers must not close each other's files
            return self._read(indices)

    def _read(self, indices: NDArray[np.integer]) -> NDArray[Any]:
        rows = np.empty((len(indices), *self._shape), self._dtype)
        if not len(indices):
            return rows
        shards = np.searchsorted(self._firsts, indices, side="right") - 1
        offsets = (indices - self._firsts[shards]) * self._row_bytes
        target, size = rows.data.cast("B"), self._row_bytes
        positions = zip(shards.tolist(), offsets.tolist(), strict=True)
        for number, (shard, offset) in enumerate(positions):
            descriptor = self._descriptor(shard)
            place = target[number * size : (number + 1) * size]
            if os.preadv(descriptor, [place], self._starts[shard] + offset) != size:
                raise UserError("truncated shard", where=self._paths[shard], fix=_AGAIN)
        return rows

    def __del__(self) -> None:
        for descriptor in getattr(self, "_open", {}).values():
            os.close(descriptor)
