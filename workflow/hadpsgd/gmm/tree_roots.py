"""Where trees start: phones that share a root (roots.int), and the tree above the roots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from hadpsgd.corpus.lang.topology import Topology
from hadpsgd.errors import UserError
from hadpsgd.gmm.event_map import PDF_CLASS, Leaf, Node, Split, Table

_KINDS = {
    (shared, split): (shared == "shared", split == "split")
    for shared in ("shared", "not-shared")
    for split in ("split", "not-split")
}


@dataclass(frozen=True, kw_only=True)
class Root:
    """Phones of one tree. shared: their states too; split: the tree may ask questions."""

    phones: tuple[int, ...]
    shared: bool = True
    split: bool = True


def read_roots(path: Path) -> list[Root]:
    """Read `shared|not-shared split|not-split PHONES` lines.

    Raises:
        UserError: missing, another line, a phone twice.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise UserError("no such file", where=path, fix="`hadpsgd lang` makes it") from None
    roots: list[Root] = []
    seen: set[int] = set()
    for number, line in enumerate(lines, 1):
        words = line.split()
        kinds, phones = tuple(words[:2]), words[2:]
        if kinds not in _KINDS or not phones or not all(phone.isdigit() for phone in phones):
            raise UserError(
                f"'{line}' is not `shared split PHONES` in numbers", where=f"{path}:{number}"
            )
        ids = tuple(sorted(int(phone) for phone in phones))
        if seen & set(ids) or len(set(ids)) < len(ids):
            raise UserError("a phone is there twice", where=f"{path}:{number}")
        seen |= set(ids)
        shared, split = _KINDS[kinds]
        roots.append(Root(phones=ids, shared=shared, split=split))
    if not roots:
        raise UserError("no roots", where=path)
    return roots


def stub(roots: Sequence[Root], topology: Topology, position: int) -> Node:
    """The tree of roots, leaves numbered from 0 in their order (Kaldi's GetStubMap)."""
    numbers = count()

    def of_one(root: Root) -> Node:
        if root.shared:
            return Leaf(next(numbers))
        classes = max(topology.num_pdf_classes(phone) for phone in root.phones)
        return Table(PDF_CLASS, tuple(Leaf(next(numbers)) for _ in range(classes)))

    def of_many(some: Sequence[Root]) -> Node:
        if len(some) == 1:
            return of_one(some[0])
        highest = max(max(root.phones) for root in some)
        if all(len(root.phones) == 1 for root in some) and len(some) <= 2 * highest:
            table: list[Node | None] = [None] * (highest + 1)
            for root in some:
                table[root.phones[0]] = of_one(root)
            return Table(position, tuple(table))
        half = len(some) // 2
        first, second = of_many(some[:half]), of_many(some[half:])
        phones = sorted(phone for root in some[:half] for phone in root.phones)
        return Split(position, tuple(phones), first, second)

    return of_many(roots)
