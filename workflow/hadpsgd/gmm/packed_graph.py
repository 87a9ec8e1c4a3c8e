"""Graphs of utterances as compressed bytes."""

from __future__ import annotations

import zlib
from typing import NamedTuple

import numpy as np

from hadpsgd.gmm.training_graph import ARC, Graph

_LEVEL = 1
"""Of zlib: the fastest."""


class Packed(NamedTuple):
    """How many states, arcs and ends a graph has, and its content."""

    states: int
    arcs: int
    ends: int
    content: bytes


def pack(graph: Graph) -> Packed:
    """Compress a graph."""
    parts = (graph.pdfs, graph.arcs, graph.ends)
    content = zlib.compress(b"".join(part.tobytes() for part in parts), _LEVEL)
    return Packed(
        states=len(graph.pdfs), arcs=len(graph.arcs), ends=len(graph.ends), content=content
    )


def unpack(packed: Packed) -> Graph:
    """The graph; its arrays cannot be written to."""
    content = zlib.decompress(packed.content)
    first = 4 * packed.states
    last = first + ARC.itemsize * packed.arcs
    return Graph(
        np.frombuffer(content, np.int32, packed.states),
        np.frombuffer(content, ARC, packed.arcs, first),
        np.frombuffer(content, ARC, packed.ends, last),
    )
