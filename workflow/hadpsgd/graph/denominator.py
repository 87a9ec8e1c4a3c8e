"""The denominator of lattice-free MMI: all phone sequences, as one HMM over pdf-ids.

A phone language model is estimated on the phones of an alignment (Povey et al. 2016, "Purely
sequence-trained neural networks for ASR based on lattice-free MMI"): trigrams without smoothing, so
that only phones are expanded that were seen together, and bigrams after histories that were seen
seldom. Its phones become HMMs by tree and transition model. One utterance follows another, so the
HMM has neither first nor last states: an example may begin and end anywhere.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.alignment.archives import read_alignments
from hadpsgd.errors import UserError, reason
from hadpsgd.files import DAMAGED_ARRAYS
from hadpsgd.gmm import event_map
from hadpsgd.gmm.event_map import Tree
from hadpsgd.gmm.phone_segments import segments
from hadpsgd.gmm.transition_model import TransitionModel

FILE = "denominator.npz"
END = 0
"""Stands for the end of an utterance and the begin of the next one: no phone, as in trees."""
SEEN = 20
"""Times that two phones were seen side by side before the third one has its own probabilities."""
_SETTLING = 100  # frames over which the mean of the states is taken (as Kaldi's chain models)
_AGAIN = "`hadpsgd egs --stage` makes it"


@dataclass(frozen=True)
class Denominator:
    """An HMM of S states with A transitions; every row of the transitions sums to one.

    pdf: int32 [S], the pdf-id that a state emits.
    source, target: int32 [A], sorted by source. probability: float32 [A].
    initial: float32 [S], probability of a state somewhere in the speech.
    """

    pdf: NDArray[np.int32]
    source: NDArray[np.int32]
    target: NDArray[np.int32]
    probability: NDArray[np.float32]
    initial: NDArray[np.float32]

    def write(self, path: Path) -> None:
        """Write it as an npz file."""
        np.savez(path, **asdict(self))

    @classmethod
    def read(cls, path: Path) -> Denominator:
        """Read what `write` wrote.

        Raises:
            UserError: it is missing or damaged.
        """
        try:
            with np.load(path) as content:
                read = cls(**{field.name: content[field.name] for field in fields(cls)})
        except FileNotFoundError:
            raise UserError("missing", where=path, fix=_AGAIN) from None
        except DAMAGED_ARRAYS as error:
            raise UserError(f"damaged ({reason(error)})", where=path, fix=_AGAIN) from None
        states, arcs = len(read.pdf), len(read.source)
        if len(read.initial) != states or {len(read.target), len(read.probability)} != {arcs}:
            raise UserError("damaged (arrays do not fit)", where=path, fix=_AGAIN)
        places = np.concatenate([read.source, read.target])
        sound = all(np.isfinite(shares).all() for shares in (read.probability, read.initial))
        if not (states and arcs and sound and 0 <= places.min() <= places.max() < states):
            raise UserError("damaged (no states or transitions)", where=path, fix=_AGAIN)
        return read


def from_alignments(folder: Path) -> Denominator:
    """Of the phones of `ali.*.gz`, by the `tree` and `final.mdl` beside them.

    Raises:
        UserError: a file is missing or broken, or the model is none that this can use.
    """
    model, alignments = read_alignments(folder)
    tree = event_map.read(folder / "tree")
    sequences = (phones_of(model, ids) for _, ids in alignments)
    return make(sequences, model, tree, where=folder)


def phones_of(model: TransitionModel, ids: NDArray[np.int32]) -> list[int]:
    """The phones of an utterance's transition-ids [frames]; not the last one, if it was cut."""
    found = segments(model, ids)
    phones: list[int] = found.phones.tolist()
    return phones if found.whole else phones[:-1]


def make(
    sequences: Iterable[Sequence[int]], model: TransitionModel, tree: Tree, *, where: Path
) -> Denominator:
    """The HMM of these utterances' phones; `where` they come from, for errors.

    Raises:
        UserError: there are no phones; the tree looks further than one phone to each side; a state
            emits other pdf-ids in its self-loop than else (as chain models do).
    """
    if (tree.width, tree.position) not in ((1, 0), (3, 1)):
        raise UserError(
            f"a tree of {tree.width} phones, the central one at {tree.position}",
            where=where,
            fix="Lattice-free MMI takes monophones and triphones",
        )
    if not model.topology.is_hmm:
        raise UserError(
            "self-loops with pdf-ids of their own",
            where=where,
            fix="Lattice-free MMI takes GMM-HMM alignments, not those of a chain model",
        )
    network = _Network(_Language.of(sequences, where), _Hmms(model, tree, where))
    return network.denominator()


@dataclass(frozen=True)
class _Language:
    """Probabilities of the next phone, END among them, after one and after two."""

    after_one: dict[int, dict[int, float]]
    after_two: dict[tuple[int, int], dict[int, float]]

    @classmethod
    def of(cls, sequences: Iterable[Sequence[int]], where: Path) -> _Language:
        one: defaultdict[int, Counter[int]] = defaultdict(Counter)
        two: defaultdict[tuple[int, int], Counter[int]] = defaultdict(Counter)
        for phones in sequences:
            if not phones:
                continue
            said = [END, *phones, END]
            for first, second in pairwise(said):
                one[first][second] += 1
            for first, second, third in zip(said, said[1:], said[2:], strict=False):
                two[first, second][third] += 1
        if not one:
            raise UserError("no phones", where=where, fix="Give alignments of some speech")
        often = {pair: found for pair, found in two.items() if found.total() >= SEEN}
        return cls(
            {phone: _shares(found) for phone, found in one.items()},
            {pair: _shares(found) for pair, found in often.items()},
        )

    def after(self, phone: int, *, before: int) -> dict[int, float]:
        """What follows `phone`, which came after `before`."""
        return self.after_two.get((before, phone)) or self.after_one[phone]

    def between(self) -> dict[tuple[int, int], float]:
        """The first phone of an utterance, and what comes after it."""
        return {
            (phone, then): share * p
            for phone, share in self.after_one[END].items()
            for then, p in self.after(phone, before=END).items()
        }


def _shares(counts: Counter[int]) -> dict[int, float]:
    total = counts.total()
    return {phone: count / total for phone, count in sorted(counts.items())}


@dataclass(frozen=True)
class _Hmm:
    """A phone's emitting states: transitions (source, target, probability) and ways out."""

    pdfs: tuple[int, ...]
    inside: tuple[tuple[int, int, float], ...]
    leaving: tuple[tuple[int, float], ...]


class _Hmms:
    """Makes the HMM of a phone between two others."""

    def __init__(self, model: TransitionModel, tree: Tree, where: Path) -> None:
        self.model, self.tree, self.where = model, tree, where
        self.rows = {tuple(row): i for i, row in enumerate(model.tuples.tolist())}
        self.made: dict[tuple[int, ...], _Hmm] = {}

    def key(self, phone: int, *, before: int, after: int) -> tuple[int, ...]:
        """The phone and the pdf-ids of its states: what decides its HMM."""
        window = (phone,) if self.tree.width == 1 else (before, phone, after)
        states = self.model.topology.states(phone)[:-1]
        pdfs = [self.tree.pdf(window, state.forward_pdf_class) for state in states]
        rows = [(phone, j, pdf, pdf) for j, pdf in enumerate(pdfs)]
        if any(row not in self.rows for row in rows):
            raise UserError(
                f"no pdf-ids for phone {phone} between {before} and {after}",
                where=self.where,
                fix="tree, final.mdl and ali.*.gz must come from the same training",
            )
        return (phone, *(pdf for pdf in pdfs if pdf is not None))

    def hmm(self, key: tuple[int, ...]) -> _Hmm:
        """Of a phone with these pdf-ids."""
        if key not in self.made:
            phone, *pdfs = key
            arcs = [arc for j, pdf in enumerate(pdfs) for arc in self._leaving(phone, j, pdf)]
            self.made[key] = _Hmm(
                tuple(pdfs),
                tuple(arc for arc in arcs if arc[1] < len(pdfs)),
                tuple((source, p) for source, target, p in arcs if target == len(pdfs)),
            )
        return self.made[key]

    def _leaving(self, phone: int, state: int, pdf: int) -> Iterable[tuple[int, int, float]]:
        first = int(self.model.first_id[self.rows[phone, state, pdf, pdf]])
        transitions = self.model.topology.states(phone)[state].transitions
        for number, (target, _) in enumerate(transitions):
            yield state, target, math.exp(float(self.model.log_probs[first + number]))


_Node = tuple[tuple[int, ...], int]
"""A phone with the pdf-ids of its states, and the phone after it: what is to come hangs on
nothing else, so phones whose left neighbours the tree does not tell apart are one node."""


class _Network:
    """Nodes and what follows them."""

    def __init__(self, language: _Language, hmms: _Hmms) -> None:
        self.language, self.hmms = language, hmms
        self.entries = {
            (hmms.key(phone, before=END, after=then), then): p
            for (phone, then), p in language.between().items()
        }
        self.base: dict[_Node, int] = {}
        self.states = 0
        waiting = list(self.entries)
        while waiting:
            node = waiting.pop()
            if node not in self.base:
                self.base[node] = self.states
                self.states += len(node[0]) - 1
                waiting += self._next(node)

    def _next(self, node: _Node) -> dict[_Node, float]:
        (phone, *_), then = node
        if then == END:
            return self.entries
        return {
            (self.hmms.key(then, before=phone, after=after), after): p
            for after, p in self.language.after(then, before=phone).items()
        }

    def denominator(self) -> Denominator:
        """As arrays."""
        pdf = np.empty(self.states, np.int32)
        arcs: list[tuple[int, int, float]] = []
        for node, base in self.base.items():
            hmm = self.hmms.hmm(node[0])
            pdf[base : base + len(hmm.pdfs)] = hmm.pdfs
            arcs += [(base + source, base + target, p) for source, target, p in hmm.inside]
            for following, share in self._next(node).items():
                entry = self.base[following]
                arcs += [(base + source, entry, p * share) for source, p in hmm.leaving]
        arcs.sort()
        sources, targets, probabilities = zip(*arcs, strict=True)
        source, target = np.array(sources, np.int32), np.array(targets, np.int32)
        leaving = np.bincount(source, probabilities, self.states)  # one, but for rounding
        probability = np.array(probabilities) / leaving[source]
        return Denominator(
            pdf, source, target, probability.astype(np.float32),
            self._initial(source, target, probability),
        )  # fmt: skip

    def _initial(
        self, source: NDArray[np.int32], target: NDArray[np.int32], probability: NDArray[np.float64]
    ) -> NDArray[np.float32]:
        """Mean of the states over the first frames of an utterance."""
        now: NDArray[np.float64] = np.zeros(self.states)
        for node, share in self.entries.items():
            now[self.base[node]] += share
        total = np.zeros(self.states)
        for _ in range(_SETTLING):
            total += now
            now = np.bincount(target, now[source] * probability, self.states).astype(np.float64)
        return (total / total.sum()).astype(np.float32)
