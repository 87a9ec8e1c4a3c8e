"""What all processes of a training read: frames, graphs (compressed) and alignments.

Frames that lie plainly in archives are read there; others are stored in a scratch file, 4 bytes a
value. Alignments take 4 bytes a frame. Memory holds an index (some numbers an utterance), never the
corpus.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from hadpsgd.files import explain_os_errors
from hadpsgd.gmm.packed_graph import Packed, unpack
from hadpsgd.gmm.stored_frames import Floats, StoredFrames
from hadpsgd.gmm.training_graph import Graph
from hadpsgd.scratch import scratch_folder

Normal = Callable[[str, Floats], Floats]
"""Normalises frames [n, dim] of a speaker."""
CHUNK = 40_000
"""Frames that a process works on at a time."""


@dataclass(frozen=True)
class Chunk:
    """Utterances `first` to `last` (exclusive), consecutive in the order of the data."""

    first: int
    last: int


class Workspace:
    """Normalised features of a data set, and what alignment adds to them.

    names, speakers: of the utterances that have features; offsets: int64 [utterances + 1],
    the first frame of each. The folder of scratch files is removed on leaving the context.
    """

    def __init__(self, parent: Path) -> None:
        """Make a folder of scratch files in `parent`."""
        parent.mkdir(parents=True, exist_ok=True)
        self._kept = ExitStack()
        self.folder = self._kept.enter_context(scratch_folder(parent, "scratch"))
        self.names: list[str] = []
        self.speakers: list[str] = []
        self.offsets = np.zeros(1, np.int64)
        self._normal: Normal | None = None
        self._graph_index = np.zeros((1, 4), np.int64)

    def __enter__(self) -> Workspace:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._kept.close()

    def __getstate__(self) -> dict[str, object]:
        """For processes that are not forked: they use the folder, and do not remove it."""
        return {name: value for name, value in vars(self).items() if name != "_kept"}

    def __len__(self) -> int:
        return len(self.names)

    @property
    def num_frames(self) -> int:
        """Frames of all utterances."""
        return int(self.offsets[-1])

    @property
    def dim(self) -> int:
        """Of the frames."""
        return self._frames.dim

    @property
    def scratch_bytes(self) -> int:
        """What frames and alignments take on disk."""
        files = (self.folder / "frames", self.folder / "alignment")
        return sum(file.stat().st_size for file in files if file.is_file())

    def fill(self, items: Iterable[tuple[str, str, Floats]]) -> None:
        """Store (utterance, speaker, float32 [frames, dim]); alignments start as none (0)."""
        names, speakers, rows, dim = [], [], [], 0
        path = self.folder / "frames"
        with explain_os_errors(self.folder), path.open("wb") as stream:
            for name, speaker, features in items:
                stream.write(np.ascontiguousarray(features, np.float32).tobytes())
                names.append(name)
                speakers.append(speaker)
                rows.append(len(features))
                dim = features.shape[1]
        lengths = np.array(rows, np.int64)
        begins = 4 * dim * (np.cumsum(lengths) - lengths)
        file = np.zeros(len(rows), np.int64)
        self.attach(
            names,
            speakers,
            StoredFrames(files=(path,), file=file, byte=begins, rows=lengths, dim=dim),
        )

    def attach(
        self,
        names: list[str],
        speakers: list[str],
        frames: StoredFrames,
        normal: Normal | None = None,
    ) -> None:
        """Take frames of (utterance, speaker) from where they are; alignments start as none (0).

        `normal` is done to the frames of a speaker whenever they are read.
        """
        self.names, self.speakers = names, speakers
        self._frames, self._normal = frames, normal
        self.offsets = np.concatenate([[0], np.cumsum(frames.rows)])
        with explain_os_errors(self.folder), (self.folder / "alignment").open("wb") as stream:
            stream.truncate(4 * self.num_frames)

    def part(self, parent: Path, numbers: NDArray[np.integer]) -> Workspace:
        """A workspace of these utterances alone [n], with their alignments; frames stay there."""
        part = Workspace(parent)
        chosen = numbers.tolist()
        names, speakers = ([every[n] for n in chosen] for every in (self.names, self.speakers))
        part.attach(names, speakers, self._frames.chosen(numbers), self._normal)
        places = (Chunk(number, number + 1) for number in chosen)
        part.load_alignments((self.names[place.first], self.alignment(place)) for place in places)
        return part

    def frames(self, chunk: Chunk) -> Floats:
        """float32 [frames of the chunk, dim]."""
        frames = self._frames.read(chunk.first, chunk.last)
        if self._normal is not None:
            bounds = self.bounds(chunk)
            for speaker, first, last in spans(self.speakers[chunk.first : chunk.last]):
                rows = slice(bounds[first], bounds[last])
                frames[rows] = self._normal(speaker, frames[rows])
        return frames

    def bounds(self, chunk: Chunk) -> NDArray[np.int64]:
        """int64 [utterances + 1]: first frame of each utterance, counted in the chunk."""
        offsets = self.offsets[chunk.first : chunk.last + 1]
        return offsets - offsets[0]

    def alignment(self, chunk: Chunk) -> NDArray[np.int32]:
        """int32 [frames of the chunk]: transition-ids; 0 where an utterance has none."""
        begin, end = self.offsets[chunk.first], self.offsets[chunk.last]
        return np.fromfile(
            self.folder / "alignment", np.int32, int(end - begin), offset=4 * int(begin)
        )

    def store_alignment(self, chunk: Chunk, ids: NDArray[np.int32]) -> None:
        """Replace the alignment of a chunk."""
        with explain_os_errors(self.folder), (self.folder / "alignment").open("rb+") as stream:
            stream.seek(4 * int(self.offsets[chunk.first]))
            stream.write(np.ascontiguousarray(ids, np.int32).tobytes())

    def save_alignment(self, path: Path) -> None:
        """Copy the alignments of all utterances into a file."""
        shutil.copyfile(self.folder / "alignment", path)

    def restore_alignment(self, path: Path) -> None:
        """Take the alignments that were saved, all or none.

        Raises:
            OSError: they cannot be read, or are of other utterances.
        """
        found = shutil.copyfile(path, self.folder / "restored")
        if found.stat().st_size != 4 * self.num_frames:
            raise OSError(f"{path} is cut short")
        found.replace(self.folder / "alignment")

    def chunks(self, frames: int = CHUNK) -> Iterator[Chunk]:
        """All utterances, in chunks of about `frames` frames."""
        first = 0
        while first < len(self):
            last = int(np.searchsorted(self.offsets, self.offsets[first] + frames, side="right"))
            last = min(max(last - 1, first + 1), len(self))
            yield Chunk(first, last)
            first = last

    def store_packed(self, graphs: Iterable[Packed]) -> None:
        """Store packed graphs of all utterances, in order, replacing those there."""
        index = [(0, 0, 0, 0)]
        with explain_os_errors(self.folder), (self.folder / "graphs").open("wb") as stream:
            for graph in graphs:
                stream.write(graph.content)
                index.append((*graph[:3], len(graph.content)))
        self._graph_index = np.array(index, np.int64)

    @property
    def graph_bytes(self) -> int:
        """What the graphs take on disk."""
        return int(self._graph_index[:, 3].sum())

    def graphs(self, chunk: Chunk) -> list[Graph]:
        """The graphs of a chunk."""
        begin = int(self._graph_index[: chunk.first + 1, 3].sum())
        with (self.folder / "graphs").open("rb") as stream:
            stream.seek(begin)
            rows = self._graph_index[chunk.first + 1 : chunk.last + 1].tolist()
            return [
                unpack(Packed(states, arcs, ends, stream.read(length)))
                for states, arcs, ends, length in rows
            ]

    def load_alignments(self, items: Iterable[tuple[str, NDArray[np.int32]]]) -> list[str]:
        """Store transition-ids by utterance; returns the utterances that get none.

        Ids of one frame more or less than the features are cut or left open at the end; those
        of other lengths are not stored.
        """
        place = {name: number for number, name in enumerate(self.names)}
        with explain_os_errors(self.folder), (self.folder / "alignment").open("rb+") as stream:
            for name, ids in items:
                number = place.get(name)
                if number is None:
                    continue
                length = int(self.offsets[number + 1] - self.offsets[number])
                if abs(len(ids) - length) <= 1:
                    stream.seek(4 * int(self.offsets[number]))
                    stream.write(np.ascontiguousarray(ids[:length], np.int32).tobytes())
                    del place[name]
        return list(place)

    def aligned(self) -> Iterator[tuple[str, NDArray[np.int32]]]:
        """(utterance, transition-ids) of the utterances that have an alignment."""
        for chunk in self.chunks():
            ids, bounds = self.alignment(chunk), self.bounds(chunk)
            for position, name in enumerate(self.names[chunk.first : chunk.last]):
                piece = ids[bounds[position] : bounds[position + 1]]
                if len(piece) and piece[0] > 0:
                    yield name, piece


def spans(items: Sequence[str]) -> list[tuple[str, int, int]]:
    """Runs of equal items: (item, first, last exclusive)."""
    runs: list[tuple[str, int, int]] = []
    for position, item in enumerate(items):
        if runs and runs[-1][0] == item:
            runs[-1] = (item, runs[-1][1], position + 1)
        else:
            runs.append((item, position, position + 1))
    return runs
