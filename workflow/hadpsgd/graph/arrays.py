"""An FST as NumPy arrays, and OpenFst's files of it: what needs all arcs at once is done here."""

from __future__ import annotations

import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path

import kaldifst
import numpy as np
from numpy.typing import NDArray

from hadpsgd.errors import UserError, reason

ARC = np.dtype([("ilabel", "<i4"), ("olabel", "<i4"), ("weight", "<f4"), ("next", "<i4")])
_STATE = np.dtype(
    [("final", "<f4"), ("first", "<u4"), ("arcs", "<u4"), ("ieps", "<u4"), ("oeps", "<u4")]
)
_MAGIC = 0x7EB2FDD6
_HEADER = struct.Struct("<iiQqqq")
_CONST, _EXPANDED = "const", 1
_VERSION, _ALIGNED_VERSION, _ALIGNED, _ALIGNMENT = 2, 1, 4, 16


@dataclass(frozen=True)
class Arrays:
    """States and arcs of an FST over the tropical semiring.

    start: start state, -1 for an empty FST.
    final: float32 [states], the cost of ending there; inf where the state is not final.
    first: int64 [states + 1], the first arc of each state; then the number of arcs.
    arcs: ARC [arcs], sorted by state.
    """

    start: int
    final: NDArray[np.float32]
    first: NDArray[np.int64]
    arcs: NDArray[np.void]

    @property
    def sources(self) -> NDArray[np.int64]:
        """int64 [arcs]: the state that each arc leaves."""
        return np.repeat(np.arange(len(self.final)), np.diff(self.first))


def assemble(
    start: int, final: NDArray[np.float32], sources: NDArray[np.integer], arcs: NDArray[np.void]
) -> Arrays:
    """Arrays from arcs in any order; arcs of a state keep their order."""
    order = np.argsort(sources, kind="stable")
    counts = np.bincount(sources, minlength=len(final))
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Arrays(start, final.astype(np.float32), first, arcs[order])


def read(path: Path) -> Arrays:
    """Read an FST file of type const or vector.

    Raises:
        UserError: missing or damaged file, or another kind of FST.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise UserError("no such graph", where=path, fix="`hadpsgd graph` makes it") from None
    try:
        kind, arc_type, values, at = _header(content)
        if arc_type != "standard" or kind not in (_CONST, "vector"):
            raise ValueError(f"an FST of type {kind!r} with {arc_type!r} arcs")
        found = _read_const(content, values, at) if kind == _CONST else _read_vector(path)
    except (ValueError, RuntimeError, MemoryError, struct.error) as error:
        what = f"not a graph, or cut short ({reason(error)})"
        raise UserError(what, where=path, fix="Make it again") from None
    if fault := _fault(found):
        raise UserError(f"a damaged graph ({fault})", where=path, fix="Make it again")
    return found


def _fault(graph: Arrays) -> str:
    """What no graph has; empty where there is nothing. A search would read beside its arrays."""
    states, arcs = len(graph.final), graph.arcs
    if not (0 <= graph.start < states or (graph.start == -1 and not states)):
        return f"start state {graph.start} of {states}"
    if graph.first[0] != 0 or (np.diff(graph.first) < 0).any():
        return "arcs of a state that do not follow those of the one before"
    for name, most in (("next", states - 1), ("ilabel", None), ("olabel", None)):
        low, high = arcs[name].min(initial=0), arcs[name].max(initial=0)
        if low < 0 or (most is not None and len(arcs) and high > most):
            return f"an arc whose {name} is {low if low < 0 else high}"
    costs = (arcs["weight"], graph.final)
    if not all(len(each) == 0 or each.min() > -np.inf for each in costs):  # nor nan
        return "a cost that is no number"
    return ""


def _read_vector(path: Path) -> Arrays:
    fst = kaldifst.StdVectorFst.read(str(path))
    if fst is None:
        raise ValueError("states or arcs are missing")
    return from_fst(fst)


def _header(content: bytes) -> tuple[str, str, tuple[int, ...], int]:
    if struct.unpack_from("<I", content)[0] != _MAGIC:
        raise ValueError("no FST header")
    at, names = 4, []
    for _ in range(2):
        (size,) = struct.unpack_from("<i", content, at)
        names.append(content[at + 4 : at + 4 + size].decode("ascii"))
        at += 4 + size
    return names[0], names[1], _HEADER.unpack_from(content, at), at + _HEADER.size


def _read_const(content: bytes, values: tuple[int, ...], at: int) -> Arrays:
    version, flags, _properties, start, num_states, num_arcs = values
    aligned = bool(flags & _ALIGNED) or version == _ALIGNED_VERSION
    if flags & 3:
        raise ValueError("it carries symbol tables")
    if min(num_states, num_arcs) < 0:
        raise ValueError(f"{num_states} states, {num_arcs} arcs")
    at = _align(at, aligned)
    states = np.frombuffer(content, _STATE, num_states, at)
    at = _align(at + states.nbytes, aligned)
    arcs = np.frombuffer(content, ARC, num_arcs, at)
    first = np.concatenate([states["first"].astype(np.int64), [num_arcs]])
    return Arrays(start, states["final"].copy(), first, arcs)


def _align(at: int, aligned: bool) -> int:
    return -(-at // _ALIGNMENT) * _ALIGNMENT if aligned else at


def write(arrays: Arrays, path: Path) -> None:
    """Write an FST of type const, which decoders read fastest."""
    num_states, counts = len(arrays.final), np.diff(arrays.first)
    states = np.zeros(num_states, _STATE)
    states["final"], states["first"], states["arcs"] = arrays.final, arrays.first[:-1], counts
    for name, label in (("ieps", "ilabel"), ("oeps", "olabel")):
        empty = arrays.sources[arrays.arcs[label] == 0]
        states[name] = np.bincount(empty, minlength=num_states)
    with Path(path).open("wb") as stream:
        stream.write(struct.pack("<I", _MAGIC))
        for name in (_CONST, "standard"):
            stream.write(struct.pack("<i", len(name)) + name.encode("ascii"))
        sizes = (arrays.start, num_states, len(arrays.arcs))
        stream.write(_HEADER.pack(_VERSION, 0, _EXPANDED, *sizes))
        stream.write(states.tobytes())
        stream.write(np.ascontiguousarray(arrays.arcs).tobytes())


def from_fst(fst: kaldifst.StdVectorFst) -> Arrays:
    """The arrays of kaldifst's FST."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fst"
        if not kaldifst.StdConstFst(fst).write(str(path)):
            raise UserError("cannot write a temporary graph", where=folder, fix="Free some space")
        content = path.read_bytes()
    _, _, values, at = _header(content)
    return _read_const(content, values, at)


def to_fst(arrays: Arrays) -> kaldifst.StdVectorFst:
    """kaldifst's FST of the arrays."""
    return kaldifst.StdVectorFst(to_const(arrays))


def to_const(arrays: Arrays) -> kaldifst.StdConstFst:
    """The same, not to be changed: a fraction of the memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fst"
        write(arrays, path)
        return kaldifst.StdConstFst.read(str(path))
