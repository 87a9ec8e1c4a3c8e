"""Read examples: shuffled by a seed, shared out among learners, without the corpus in RAM."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hadpsgd.egs.layout import INT8, LABELS, Layout, Scales
from hadpsgd.egs.rows import AGAIN, Rows, check_array, read_table
from hadpsgd.egs.shards import COUNTS, FORMAT, SCALES
from hadpsgd.egs.shuffle import RunOrder
from hadpsgd.errors import UserError
from hadpsgd.files import DAMAGED_ARRAYS, sha256

Made = TypeVar("Made")
"""What a reader makes of a minibatch."""
Bytes = Callable[[int, int], NDArray[np.uint8]]
"""Room for rows of bytes [n, bytes], of any values."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Examples as they lie on disk, for whoever puts their inputs together elsewhere."""

    rows: NDArray[np.uint8]
    """[n, bytes] of `Layout.row`."""
    shards: NDArray[np.int64]
    """Files that they are in, [n]: scales of 8 bits are those of a file."""
    vectors: dict[str, NDArray[np.floating]]
    """i-vectors by stream, [n, frames or 1, dim]."""


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
    together: int = 1
    """Neighbours on disk that stay together in the order (`RunOrder`)."""

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return -(-self.size // self.batch)

    def part(self, *, epoch: int, step: int, rank: int = 0, learners: int = 1) -> NDArray[np.int64]:
        """Subsequences of one learner in one step, sorted."""
        start, stop = (self.size * s // self.steps for s in (step, step + 1))
        first, last = (start + (stop - start) * r // learners for r in (rank, rank + 1))
        order = RunOrder(self.size, self.seed, epoch, run=self.together)
        return np.sort(order(np.arange(first, last)))


class Dataset:
    """Examples made by `hadpsgd egs`."""

    def __init__(self, folder: Path, *, readers: int = 1) -> None:
        """Read meta.json and the headers of all shards.

        Args:
            folder: of `hadpsgd egs`.
            readers: threads that read a batch and put its inputs together (for a GPU read alone).

        Raises:
            UserError: no examples here, or a file is missing, truncated or of another shape.
        """
        self.folder = Path(folder)
        self.meta, self.layout = _read_meta(self.folder / "meta.json")
        self.frames: int = self.layout.frames
        self.dim: int = self.layout.dim
        self.num_pdfs: int = self.meta["num_pdfs"]
        self.streams: dict[str, int] = self.layout.dims
        self.bins: int = self.meta.get("bins", 0)
        """Mel bins of the stream logmel; 0 where it is not there."""
        self.pdf_counts = _read_counts(self.folder / COUNTS, self.num_pdfs)
        shards = self.meta["shards"]
        self.rows = Rows(
            [self.folder / shard["examples"] for shard in shards],
            [shard["subsequences"] for shard in shards],
            self.layout.row,
        )
        self._table = read_table(self.folder, self.meta.get("table"), self.layout.table_dtype)
        self.scales = _read_scales(self.folder / SCALES, self.layout, len(shards))
        """Of 8-bit examples, [shards, 2, features]."""
        self._readers = readers
        self._pool = ThreadPoolExecutor(readers, "egs-rows") if readers > 1 else None

    def __len__(self) -> int:
        """Subsequences."""
        return self.meta["subsequences"]

    def verify(self, *, rank: int = 0, learners: int = 1) -> None:
        """Compare the checksums of all files, or of one learner's share of the shards.

        Raises:
            UserError: a file's content is not what was written; names it.
        """
        shards = list(enumerate(self.meta["shards"]))
        for number, shard in shards[rank::learners]:
            self.rows.verify(number, shard["sha256"])
        if rank:
            return
        if self._table is not None:
            self._table.verify(self.meta["table"]["sha256"])
        for name, checksum in self.meta.get("files", {}).items():
            path = self.folder / name
            if not path.is_file() or sha256(path) != checksum:
                what = "damaged: its checksum is not that of meta.json"
                raise UserError(what if path.is_file() else "missing", where=path, fix=AGAIN)

    def gather(self, indices: NDArray[np.integer]) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """Features [n, frames, dim] and labels [n, frames] of subsequences; fastest if sorted.

        Raises:
            UserError: a shard was cut or removed meanwhile.
        """
        features = np.empty((len(indices), self.frames, self.dim), np.float32)
        labels = np.empty((len(indices), self.frames), np.int32)
        vectors = None if self._table is None else self._table.values

        def fill(part: slice) -> None:
            rows = self.rows.read(indices[part])
            scales = self.scales
            if scales is not None:
                scales = scales[self.rows.shards(indices[part])]
            self.layout.inputs(rows, vectors, scales, out=features[part])
            labels[part] = rows[LABELS]

        self._side_by_side(fill, len(indices))
        return features, labels

    def stored(self, indices: NDArray[np.integer], room: Bytes) -> Stored:
        """Subsequences as they lie on disk; fastest if sorted.

        Raises:
            UserError: a shard was cut or removed meanwhile.
        """
        kind = self.layout.row
        found = room(len(indices), kind.itemsize)
        rows = found.reshape(-1).view(kind)

        def fill(part: slice) -> None:
            self.rows.read(indices[part], out=rows[part])

        self._side_by_side(fill, len(indices))
        vectors = {}
        for stream in (part.stream for part in self.layout.parts if part.table):
            assert self._table is not None
            vectors[stream] = self._table.values[rows[stream]]
        return Stored(rows=found, shards=self.rows.shards(indices), vectors=vectors)

    def _side_by_side(self, fill: Callable[[slice], None], size: int) -> None:
        """Parts of a minibatch, each by a reader."""
        ends = [size * r // self._readers for r in range(self._readers + 1)]
        parts = [slice(*pair) for pair in pairwise(ends)]
        for _ in self._pool.map(fill, parts) if self._pool else map(fill, parts):
            pass

    def batches(
        self, plan: Plan, read: Callable[[NDArray[np.int64]], Made], *, epoch: int, rank: int = 0,
        learners: int = 1, start: int = 0, ahead: int = 2,
    ) -> Iterator[Made]:  # fmt: skip
        """What `read` makes of a learner's parts of an epoch from step `start` on.

        (epoch, step) is all there is to a position: the same pair gives the same part. A thread
        reads `ahead` parts before they are asked for.

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

        def made(step: int) -> Made:
            return read(plan.part(epoch=epoch, step=step, rank=rank, learners=learners))

        with ThreadPoolExecutor(1, "egs") as pool:
            waiting: deque[Future[Made]] = deque()
            for step in range(start, plan.steps):
                waiting.append(pool.submit(made, step))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()


def _read_meta(path: Path) -> tuple[dict[str, Any], Layout]:
    """The description, and the rows that it describes."""
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError("no examples here", where=path.parent, fix=AGAIN) from None
    except ValueError:
        raise UserError("not JSON", where=path, fix=AGAIN) from None
    try:
        if meta.get("format") != FORMAT:
            raise UserError(f"examples of format {meta.get('format')}", where=path, fix=AGAIN)
        return meta, _described(meta)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise UserError(f"damaged ({error})", where=path, fix=AGAIN) from None


def _described(meta: dict[str, Any]) -> Layout:
    """The rows of examples; all that is read of a description has to be there.

    Raises:
        KeyError, TypeError, ValueError: it is not, or does not fit.
    """
    layout, table = Layout.of(meta), meta.get("table")
    sizes = [(str(s["examples"]), str(s["sha256"]), int(s["subsequences"])) for s in meta["shards"]]
    _ = meta.get("files", {}).items()  # older examples have none
    if not layout.row.itemsize or int(meta["num_pdfs"]) < 1:
        raise ValueError("nothing in it")
    if sum(size for *_, size in sizes) != meta["subsequences"]:
        raise ValueError(f"{meta['subsequences']} subsequences are not those of its shards")
    if any(part.table for part in layout.parts) != (table is not None):
        raise ValueError("i-vectors or their table are missing")
    if table is not None:
        _ = int(table["vectors"]), int(table["dim"]), str(table["sha256"])
    return layout


def _read_counts(path: Path, pdfs: int) -> NDArray[np.int64]:
    try:
        counts: NDArray[np.int64] = np.load(path)
        shape = counts.shape
    except (*DAMAGED_ARRAYS, AttributeError):
        raise UserError("cannot be read", where=path, fix=AGAIN) from None
    if shape != (pdfs,):
        raise UserError(f"shape {shape} instead of ({pdfs},)", where=path, fix=AGAIN)
    return counts


def _read_scales(path: Path, layout: Layout, shards: int) -> Scales | None:
    """Of 8-bit examples, [shards, 2, features]."""
    if layout.dtype != INT8:
        return None
    check_array(path, (shards, 2, layout.features), np.dtype(np.float32))
    scales: Scales = np.load(path)
    if not np.isfinite(scales).all():
        raise UserError("damaged: a scale is not a finite number", where=path, fix=AGAIN)
    return scales
