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
DEEPEST = 250
"""Most questions one below another: trees are read and grown by functions that call themselves. A
tree of 32,000 leaves has some 50 where it grew from data."""


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
    waiting = [node]
    while waiting:
        match waiting.pop():
            case Leaf() as leaf:
                yield leaf
            case Split(_, _, yes, no):
                waiting += (no, yes)
            case Table(_, children):
                waiting += reversed(children)


def answers(node: Node | None, known: Mapping[int, int]) -> set[int]:
    """All answers for events of which only some keys are known (Kaldi's MultiMap)."""
    found: set[int] = set()
    waiting = [node]
    while waiting:
        match waiting.pop():
            case Leaf(answer):
                found.add(answer)
            case Split(key, values, yes, no):
                waiting += (yes, no) if key not in known else (yes if known[key] in values else no,)
            case Table(key, children):
                waiting += children if key not in known else children[known[key] :][:1]
    return found


def _read_node(reader: Reader, depth: int = 0) -> Node | None:
    if depth > DEEPEST:
        raise reader.fail(f"the tree has more than {DEEPEST} questions one below another")
    match reader.expect("CE", "TE", "SE", "NULL"):
        case "CE":
            return Leaf(reader.int32())
        case "TE":
            key, size = reader.int32(), reader.uint32()
            reader.expect("(")
            children: list[Node | None] = []
            for _ in range(size):
                children.append(_read_node(reader, depth + 1))
            reader.expect(")")
            return Table(key, tuple(children))
        case "SE":
            key, values = reader.int32(), reader.int32_vector()
            reader.expect("{")
            yes, no = _read_node(reader, depth + 1), _read_node(reader, depth + 1)
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
