"""States and arcs of determinised lattices as Kaldi writes its CompactLattice."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable

import numpy as np

from hadpsgd.decoding.lattice import ARC, Lattice, topologically_sorted

TYPE = b"compactlattice44"
_WEIGHT = struct.Struct("<ffi")  # graph, acoustic, number of transition-ids that follow
_ARC, _NEXT, _COUNT = struct.Struct("<ii"), struct.Struct("<i"), struct.Struct("<q")
_NOT_FINAL = (np.inf, np.inf)


def encoded(lattice: Lattice) -> bytes:
    """What follows the head of the file, of a determinised lattice."""
    assert lattice.ids is not None
    content = lattice.ids.astype("<i4").tobytes()
    ends = [0, *(4 * np.cumsum(lattice.frames)).tolist()]
    rows, first = lattice.arcs.tolist(), lattice.first.tolist()
    parts: list[bytes] = []
    for state, (graph, acoustic) in enumerate(lattice.final.tolist()):
        parts += _WEIGHT.pack(graph, acoustic, 0), _COUNT.pack(first[state + 1] - first[state])
        for arc in range(first[state], first[state + 1]):
            count, word, graph, acoustic, target = rows[arc]
            parts += _ARC.pack(word, word), _WEIGHT.pack(graph, acoustic, count)
            parts += content[ends[arc] : ends[arc + 1]], _NEXT.pack(target)
    return b"".join(parts)


def decoded(take: Callable[[int], bytes], *, num_states: int, start: int) -> Lattice:
    """The lattice that follows the head of the file; `take` reads so many bytes.

    A state that ends with transition-ids (Kaldi's do) gets an arc with them to a state more.

    Raises:
        ValueError: numbers that cannot be.
    """
    rows: list[tuple[int, int, float, float, int]] = []
    finals: list[tuple[float, float]] = []
    first, ids, more = [0], array("i"), False

    def weight() -> tuple[float, float, int]:
        graph, acoustic, count = _WEIGHT.unpack(take(_WEIGHT.size))
        if count < 0:
            raise ValueError("fewer than 0 transition-ids")
        ids.frombytes(take(4 * count))
        return graph, acoustic, count

    for _ in range(num_states):
        graph, acoustic, ending = weight()
        if ending:
            rows.append((ending, 0, graph, acoustic, num_states))
            graph, acoustic, more = *_NOT_FINAL, True
        finals.append((graph, acoustic))
        (count,) = _COUNT.unpack(take(_COUNT.size))
        if count < 0:
            raise ValueError("a state of fewer than 0 arcs")
        for _ in range(count):
            word, _ = _ARC.unpack(take(_ARC.size))
            graph, acoustic, spoken = weight()
            (target,) = _NEXT.unpack(take(_NEXT.size))
            if not 0 <= target < num_states:
                raise ValueError(f"an arc to state {target}")
            rows.append((spoken, word, graph, acoustic, target))
        first.append(len(rows))
    if more:
        finals.append((0.0, 0.0))
        first.append(len(rows))
    lattice = Lattice(
        np.array(finals, np.float32).reshape(-1, 2),
        np.array(first, np.int64),
        np.array(rows, ARC),
        np.frombuffer(ids, np.int32) if ids else np.zeros(0, np.int32),
    )
    return topologically_sorted(lattice, start)
