"""Decision tree of `tree`: from (position, phone) events to pdf-ids (Kaldi's tree/event-map).

Keys of an event: 0 .. width-1 are positions in the phone window, -1 is the pdf-class (HMM state).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hadpsgd.kaldi_binary import Reader, Writer

PDF_CLASS = -1


@dataclass(frozen=True)
class Leaf:
    """A pdf-id."""

    answer: int


@dataclass(frozen=True)
class Table:
    """One child for each value of `key`; None where no event may come."""

    key: int
    children: tuple[Node | None, ...]


@dataclass(frozen=True)
class Split:
    """`yes` where the value of `key` is in `values` (sorted), else `no`."""

    key: int
    values: tuple[int, ...]
    yes: Node
    no: Node


Node = Leaf | Table | Split


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A tree over windows of `width` phones; the central phone is at `position`."""

    width: int
    position: int
    root: Node

    def pdf(self, window: tuple[int, ...], pdf_class: int) -> int | None:
        """The pdf-id of a window of phones; None where the tree has none."""
        return lookup(self.root, {**dict(enumerate(window)), PDF_CLASS: pdf_class})

    @property
    def num_pdfs(self) -> int:
        """Number of pdf-ids."""
        return 1 + max(leaf.answer for leaf in leaves(self.root))


def lookup(node: Node | None, event: Mapping[int, int]) -> int | None:
    """The answer for an event; None where the tree has none."""
    while node is not None and not isinstance(node, Leaf):
        value = event[node.key]
        if isinstance(node, Split):
            node = node.yes if value in node.values else node.no
        else:
            node = node.children[value] if 0 <= value < len(node.children) else None
    return None if node is None else node.answer


def leaves(node: Node | None) -> Iterator[Leaf]:
    """All leaves, left to right."""
    if isinstance(node, Leaf):
        yield node
    elif isinstance(node, Split):
        yield from leaves(node.yes)
        yield from leaves(node.no)
    elif node is not None:
        for child in node.children:
            yield from leaves(child)


def answers(node: Node | None, known: Mapping[int, int]) -> set[int]:
    """All answers for events of which only some keys are known (Kaldi's MultiMap)."""
    if node is None:
        return set()
    if isinstance(node, Leaf):
        return {node.answer}
    if node.key not in known:
        children = (node.yes, node.no) if isinstance(node, Split) else node.children
        return set().union(*(answers(child, known) for child in children))
    value = known[node.key]
    if isinstance(node, Split):
        return answers(node.yes if value in node.values else node.no, known)
    return answers(node.children[value], known) if value < len(node.children) else set()


def _read_node(reader: Reader) -> Node | None:
    match reader.expect("CE", "TE", "SE", "NULL"):
        case "CE":
            return Leaf(reader.int32())
        case "TE":
            key, size = reader.int32(), reader.uint32()
            reader.expect("(")
            children = tuple(_read_node(reader) for _ in range(size))
            reader.expect(")")
            return Table(key, children)
        case "SE":
            key, values = reader.int32(), reader.int32_vector()
            reader.expect("{")
            yes, no = _read_node(reader), _read_node(reader)
            reader.expect("}")
            if yes is None or no is None:
                raise reader.fail("a split of the tree lacks a branch")
            return Split(key, tuple(values.tolist()), yes, no)
    return None


def _write_node(node: Node | None, writer: Writer) -> None:
    match node:
        case None:
            writer.token("NULL")
        case Leaf(answer):
            writer.token("CE")
            writer.int32(answer)
        case Table(key, children):
            writer.token("TE")
            writer.int32(key)
            writer.uint32(len(children))
            writer.token("(")
            for child in children:
                _write_node(child, writer)
            writer.token(")")
        case Split(key, values, yes, no):
            writer.token("SE")
            writer.int32(key)
            writer.int32_vector(np.array(values, np.int32))
            writer.token("{")
            _write_node(yes, writer)
            _write_node(no, writer)
            writer.token("}")


def read(path: Path) -> Tree:
    """Read a `tree` file.

    Raises:
        UserError: it is missing, cut short or no tree.
    """
    reader = Reader.open(path)
    reader.expect("ContextDependency")
    width, position = reader.int32(), reader.int32()
    reader.expect("ToPdf")
    root = _read_node(reader)
    reader.expect("EndContextDependency")
    reader.finish()
    if root is None:
        raise reader.fail("the tree is empty")
    return Tree(width=width, position=position, root=root)


def content(tree: Tree) -> bytes:
    """The bytes of a `tree` file."""
    writer = Writer()
    writer.token("ContextDependency")
    writer.int32(tree.width)
    writer.int32(tree.position)
    writer.token("ToPdf")
    _write_node(tree.root, writer)
    writer.token("EndContextDependency")
    return writer.content()
