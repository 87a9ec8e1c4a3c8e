"""HMM topology: states, pdf-classes and transitions of each phone (Kaldi's HmmTopology)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.errors import UserError

NO_PDF = -1


@dataclass(frozen=True, kw_only=True)
class State:
    """A state: its pdf-classes (-1: non-emitting) and (next state, probability) pairs."""

    forward_pdf_class: int
    self_loop_pdf_class: int
    transitions: tuple[tuple[int, float], ...] = ()


Entry = tuple[State, ...]


@dataclass(frozen=True)
class Topology:
    """`entries[index[phone]]` are the states of a phone; `index` is -1 for phones unknown."""

    phones: NDArray[np.int32]
    index: NDArray[np.int32]
    entries: tuple[Entry, ...]

    def states(self, phone: int) -> Entry:
        """The states of a phone, the final non-emitting one included."""
        return self.entries[self.index[phone]]

    def num_pdf_classes(self, phone: int) -> int:
        """Number of pdf-classes of a phone."""
        classes = [
            max(state.forward_pdf_class, state.self_loop_pdf_class) for state in self.states(phone)
        ]
        return max(classes) + 1

    @property
    def is_hmm(self) -> bool:
        """Every state has one pdf-class for its self-loop and its other transitions."""
        states = [state for entry in self.entries for state in entry]
        return all(s.forward_pdf_class == s.self_loop_pdf_class for s in states)


def make_topology(entries: Sequence[tuple[Sequence[int], Entry]]) -> Topology:
    """A topology from (phones, states) pairs."""
    phones = sorted(phone for group, _ in entries for phone in group)
    index = np.full(max(phones) + 1, -1, np.int32)
    for number, (group, _) in enumerate(entries):
        index[list(group)] = number
    return Topology(np.array(phones, np.int32), index, tuple(entry for _, entry in entries))


def bakis(states: int) -> Entry:
    """Left to right with self-loops: Kaldi's topology of a non-silence phone."""
    emitting = [
        State(forward_pdf_class=i, self_loop_pdf_class=i, transitions=((i, 0.75), (i + 1, 0.25)))
        for i in range(states)
    ]
    return (*emitting, State(forward_pdf_class=NO_PDF, self_loop_pdf_class=NO_PDF))


def silence(states: int) -> Entry:
    """Kaldi's topology of a silence phone: the middle states reach one another."""
    if states < 3:
        return bakis(states)
    share = 1.0 / (states - 1)
    first = State(
        forward_pdf_class=0,
        self_loop_pdf_class=0,
        transitions=tuple((target, share) for target in range(states - 1)),
    )
    middle = [
        State(
            forward_pdf_class=i,
            self_loop_pdf_class=i,
            transitions=tuple((target, share) for target in range(1, states)),
        )
        for i in range(1, states - 1)
    ]
    last = State(
        forward_pdf_class=states - 1,
        self_loop_pdf_class=states - 1,
        transitions=((states - 1, 0.75), (states, 0.25)),
    )
    return (first, *middle, last, State(forward_pdf_class=NO_PDF, self_loop_pdf_class=NO_PDF))


def to_text(topology: Topology) -> str:
    """The text form of Kaldi's `topo` file."""
    lines = ["<Topology>"]
    for number, entry in enumerate(topology.entries):
        phones = [str(p) for p in topology.phones if topology.index[p] == number]
        lines += ["<TopologyEntry>", "<ForPhones>", " ".join(phones), "</ForPhones>"]
        lines += [_state_text(position, state) for position, state in enumerate(entry)]
        lines.append("</TopologyEntry>")
    return "\n".join([*lines, "</Topology>"]) + "\n"


def _state_text(position: int, state: State) -> str:
    words = [f"<State> {position}"]
    if state.forward_pdf_class != NO_PDF:
        if state.forward_pdf_class == state.self_loop_pdf_class:
            words.append(f"<PdfClass> {state.forward_pdf_class}")
        else:
            words.append(f"<ForwardPdfClass> {state.forward_pdf_class}")
            words.append(f"<SelfLoopPdfClass> {state.self_loop_pdf_class}")
    words += [f"<Transition> {target} {p:.6g}" for target, p in state.transitions]
    return " ".join([*words, "</State>"])


def read_text(path: Path) -> Topology:
    """Read a `topo` file.

    Raises:
        UserError: the file is missing or is no topology.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError("no such file", where=path) from None
    entries = []
    for body in re.findall(r"<TopologyEntry>(.*?)</TopologyEntry>", text, re.DOTALL):
        found = re.search(r"<ForPhones>([\d\s]+)</ForPhones>", body)
        states = re.findall(r"<State>(.*?)</State>", body, re.DOTALL)
        if found is None or not states:
            raise UserError("an entry has no phones or no states", where=path)
        entries.append(
            ([int(p) for p in found[1].split()], tuple(_read_state(s, path) for s in states))
        )
    if not entries:
        raise UserError("not an HMM topology: no <TopologyEntry>", where=path)
    return make_topology(entries)


def _read_state(text: str, path: Path) -> State:
    try:
        classes = {name: int(value) for name, value in re.findall(r"<(\w*PdfClass)> (\d+)", text)}
        arcs = tuple(
            (int(target), float(p)) for target, p in re.findall(r"<Transition> (\d+) (\S+)", text)
        )
    except ValueError as error:
        raise UserError(f"not an HMM topology: {error}", where=path) from None
    both = classes.get("PdfClass", NO_PDF)
    return State(
        forward_pdf_class=classes.get("ForwardPdfClass", both),
        self_loop_pdf_class=classes.get("SelfLoopPdfClass", both),
        transitions=arcs,
    )
