"""Lattice archives in Kaldi's binary formats (`lat.*.gz`), read and written as streams."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import struct
import tempfile
import zlib
from array import array
from collections.abc import Container, Iterator
from pathlib import Path
from typing import BinaryIO, cast

import kaldifst
import numpy as np
from numpy.typing import NDArray

from hadpsgd.decoding import compact_io
from hadpsgd.decoding.lattice import ARC, Lattice, topologically_sorted
from hadpsgd.errors import UserError, reason

_MAGIC = b"\xd6\xfd\xb2\x7e"
_VECTOR, _LATTICE = b"vector", b"lattice4"
_HEADER = struct.Struct("<iiQqqq")
_STATE, _COUNT = struct.Struct("<ffq"), struct.Struct("<q")  # a state: costs of ending, arcs
_VERSION, _PROPERTIES = 2, 3  # expanded and mutable; nothing else is claimed
_LINK = np.dtype([("final", "<f4", 2), ("count", "<i8"), ("arc", ARC)])
_BLOCK = 1 << 18
_STATES = 1 << 16  # encoded and decoded together
_GZIP = 31  # zlib's way to ask for the head of a gzip file
_NAME = re.compile(r"lat\.(\d+)\.gz")
_AGAIN = "Decode again"


def encode(lattice: Lattice) -> bytes:
    """A lattice as OpenFst writes it: what follows the utterance's name in an archive."""
    return b"".join(_encoded(lattice))


def _encoded(lattice: Lattice) -> Iterator[bytes]:
    """The same in pieces: a long utterance has millions of states."""
    kind = _LATTICE if lattice.ids is None else compact_io.TYPE
    names = b"".join(struct.pack("<i", len(name)) + name for name in (_VECTOR, kind))
    start = 0 if lattice.num_states else -1
    sizes = (start, lattice.num_states, len(lattice.arcs))
    yield _MAGIC + names + _HEADER.pack(_VERSION, 0, _PROPERTIES, *sizes)
    if lattice.ids is not None:
        yield compact_io.encoded(lattice)
        return
    for low in range(0, lattice.num_states, _STATES):
        high = min(low + _STATES, lattice.num_states)
        first = lattice.first[low : high + 1]
        states = np.empty(high - low, np.dtype([("final", "<f4", 2), ("arcs", "<i8")]))
        states["final"], states["arcs"] = lattice.final[low:high], np.diff(first)
        arcs = np.ascontiguousarray(lattice.arcs[first[0] : first[-1]])
        size = states.itemsize
        content = np.empty(states.nbytes + arcs.nbytes, np.uint8)
        at = (first[:-1] - first[0]) * ARC.itemsize + np.arange(high - low) * size
        heads = (at[:, None] + np.arange(size)).ravel()
        body = np.ones(len(content), bool)
        body[heads] = False
        content[heads] = states.view(np.uint8)
        content[body] = arcs.view(np.uint8)
        yield content.tobytes()


def entry(utterance: str, lattice: Lattice) -> bytes:
    """One utterance of an archive, compressed; entries may be joined to a whole archive."""
    packer = zlib.compressobj(1, wbits=_GZIP)
    parts = [packer.compress(f"{utterance} ".encode())]
    parts += map(packer.compress, _encoded(lattice))
    return b"".join([*parts, packer.flush()])


def parse(content: bytes) -> Lattice:
    """A lattice from the bytes of kaldifst's `Lattice.write`."""
    return _Source(iter([content])).lattice()


def of_kaldifst(lattice: kaldifst.Lattice) -> Lattice:
    """Our lattice of kaldifst's, which only a file leads out of.

    Raises:
        UserError: no room for a temporary file.
    """
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="hadpsgd", dir=memory) as folder:
        path = Path(folder) / "lattice"
        if not lattice.write(str(path)):
            what = "cannot write a temporary lattice"
            raise UserError(what, where=folder, fix="Free some space")
        return parse(path.read_bytes())


def read(folder: Path, wanted: Container[str] | None = None) -> Iterator[tuple[str, Lattice]]:
    """Yield (utterance, lattice) of `lat.*.gz` in a folder, in the order of their numbers.

    Args:
        folder: a decoding's.
        wanted: utterances; the others are passed over. None: all.

    Raises:
        UserError: no archives, a damaged one, or lattices of another kind; fewer archives than
            `num_jobs` says, or other than so many utterances as decode.json (each if it is there).
    """
    names = {path: _NAME.fullmatch(path.name) for path in Path(folder).glob("lat.*.gz")}
    files = sorted((int(match[1]), path) for path, match in names.items() if match)
    if not files:
        raise UserError("no lat.*.gz", where=folder, fix="`hadpsgd decode` writes them")
    archives, utterances = _said(Path(folder))
    if archives is not None and len(files) != archives:
        what = f"{len(files)} files lat.*.gz, and num_jobs says {archives}"
        raise UserError(what, where=folder, fix=_AGAIN)
    seen = 0
    for _, path in files:
        for utterance, lattice in _entries(path, wanted):
            seen += 1
            if lattice is not None:
                yield utterance, lattice
    if utterances is not None and seen != utterances:
        what = f"lattices of {seen} utterances, and decode.json says {utterances}"
        raise UserError(what, where=folder, fix=_AGAIN)


def count(folder: Path) -> int:
    """How many utterances of a folder have a lattice; 1 where decode.json does not say.

    Raises:
        UserError: a file that says so is damaged.
    """
    return _said(Path(folder))[1] or 1


def scale_of(folder: Path) -> float | None:
    """Acoustic scale with which a folder's lattices were searched, where decode.json says it.

    Raises:
        UserError: a damaged decode.json.
    """
    report = Path(folder) / "decode.json"
    if not report.is_file():
        return None
    try:
        scale = float(json.loads(report.read_text("utf-8"))["options"]["acoustic_scale"])
        if not 0 < scale < math.inf:
            raise ValueError(f"acoustic_scale {scale:g}")
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"damaged ({reason(error)})", where=report, fix=_AGAIN) from None
    return scale


def _said(folder: Path) -> tuple[int | None, int | None]:
    """How many archives and utterances with a lattice there should be, where that is known."""
    jobs, report = folder / "num_jobs", folder / "decode.json"
    archives = utterances = None
    try:
        where = jobs
        if jobs.is_file():
            archives = int(jobs.read_text(encoding="utf-8"))
        where = report
        if report.is_file():
            said = json.loads(report.read_text(encoding="utf-8"))
            utterances = int(said["utterances"]) - len(said["failed"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"damaged ({error})", where=where, fix=_AGAIN) from None
    return archives, utterances


def _entries(path: Path, wanted: Container[str] | None) -> Iterator[tuple[str, Lattice | None]]:
    """All utterances of an archive, with the lattices of those that are wanted."""
    utterance: str | None = None
    with gzip.open(path, "rb") as stream:
        source = _Source(_blocks(cast(BinaryIO, stream)))
        try:
            while (utterance := source.key()) is not None:
                if wanted is None or utterance in wanted:
                    yield utterance, source.lattice()
                else:
                    source.skip()
                    yield utterance, None
        except (EOFError, ValueError, struct.error, zlib.error, gzip.BadGzipFile) as error:
            where = f"{path}, utterance {utterance}" if utterance else path
            what = f"damaged or no lattice archive ({reason(error)})"
            raise UserError(what, where=where, fix=_AGAIN) from None


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    try:
        while block := stream.read(_BLOCK):
            yield block
    except EOFError:  # not the end of the archive, but of a part of it
        raise ValueError("cut short") from None


class _Source:
    """Bytes that are read in blocks and looked at in place."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._data, self._at = b"", 0

    def _need(self, size: int, at: int) -> None:
        """Make sure that `size` bytes can be read at `at`, counted from `self._at`."""
        missing = self._at + at + size - len(self._data)
        if missing <= 0:
            return
        parts = [self._data[self._at :]]
        while missing > 0:
            block = next(self._blocks, b"")
            if not block:
                raise EOFError
            parts.append(block)
            missing -= len(block)
        self._data, self._at = b"".join(parts), 0

    def _take(self, size: int) -> bytes:
        self._need(size, 0)
        self._at += size
        return self._data[self._at - size : self._at]

    def key(self) -> str | None:
        """The next utterance, None at the end."""
        try:
            self._need(1, 0)
        except EOFError:
            return None
        letters = bytearray()
        while (letter := self._take(1)) != b" ":
            if letter < b" " and letter != b"\n":
                raise ValueError("no utterance's name")
            letters += letter.strip()
        return letters.decode()

    def lattice(self) -> Lattice:
        """The lattice that follows."""
        kind, start, num_states, num_arcs = self._header()
        if kind == compact_io.TYPE:
            return compact_io.decoded(self._take, num_states=num_states, start=max(start, 0))
        few = num_arcs in (0, num_states - 1)  # kaldifst says 0
        if start == 0 and few and (chain := self._chain(num_states)):
            return chain
        heads = self._heads(num_states)
        return _assemble(self._take(int(heads[-1])), heads, max(start, 0))

    def skip(self) -> None:
        """Pass over the lattice that follows."""
        kind, start, num_states, _num_arcs = self._header()
        if kind == compact_io.TYPE:
            compact_io.decoded(self._take, num_states=num_states, start=max(start, 0))
            return
        self._take(int(self._heads(num_states)[-1]))

    def _header(self) -> tuple[bytes, int, int, int]:
        """Kind of lattice, start state, number of states, number of arcs."""
        if self._take(4) != _MAGIC:
            raise ValueError("not binary")
        fst, kind = (self._take(*struct.unpack("<i", self._take(4))) for _ in range(2))
        if fst != _VECTOR or kind not in (_LATTICE, compact_io.TYPE):
            raise ValueError(f"lattices of kind {kind.decode(errors='replace')}")
        _version, _flags, _properties, *sizes = _HEADER.unpack(self._take(_HEADER.size))
        start, num_states, num_arcs = sizes
        return kind, start, num_states, num_arcs

    def _heads(self, num_states: int) -> NDArray[np.int64]:
        """The byte at which each state begins, counted from here; last, where all end."""
        heads, at = array("q", [0]), 0
        count_at, behind = _COUNT.unpack_from, _STATE.size - _COUNT.size
        for _ in range(num_states):
            if self._at + at + _STATE.size > len(self._data):
                self._need(_STATE.size, at)
            (count,) = count_at(self._data, self._at + at + behind)
            if count < 0:
                raise ValueError("a state of fewer than 0 arcs")
            at += _STATE.size + count * ARC.itemsize
            heads.append(at)
        return np.frombuffer(heads, np.int64)

    def _chain(self, num_states: int) -> Lattice | None:
        """A lattice that is one path, every state's arc leading to the next; None if it is not."""
        size = num_states * _LINK.itemsize - ARC.itemsize
        try:
            self._need(size, 0)
        except EOFError:
            return None
        links = np.frombuffer(self._data, _LINK, num_states - 1, self._at)
        last = _STATE.unpack_from(self._data, self._at + size - _STATE.size)
        ahead = np.arange(1, num_states)
        if last[2] or (links["count"] != 1).any() or (links["arc"]["next"] != ahead).any():
            return None
        self._at += size
        final = np.concatenate([links["final"], np.array([last[:2]], np.float32)])
        first = np.append(np.arange(num_states), num_states - 1)
        return Lattice(final, first, links["arc"].copy())


def _assemble(content: bytes, heads: NDArray[np.int64], start: int) -> Lattice:
    """The lattice of all its bytes; heads: where states begin and, last, end."""
    count = len(heads) - 1
    final = np.empty((count, 2), np.float32)
    first = (heads - np.arange(len(heads)) * _STATE.size) // ARC.itemsize
    arcs = np.empty(first[-1], ARC)
    words = _STATE.size // 4  # 32-bit numbers
    for low in range(0, count, _STATES):
        high = min(low + _STATES, count)
        numbers = np.frombuffer(content[heads[low] : heads[high]], "<u4")
        at = (heads[low:high] - heads[low]) // numbers.itemsize
        final[low:high] = numbers[at[:, None] + np.arange(2)].view("<f4")
        body = np.ones(len(numbers), bool)
        body[(at[:, None] + np.arange(words)).ravel()] = False
        arcs[first[low] : first[high]] = numbers[body].view(ARC)
    return topologically_sorted(Lattice(final, first, arcs), start)
