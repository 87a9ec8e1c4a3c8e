"""Lattices of a pruned first pass with the costs of the full language model."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.corpus.lang.directory import read_symbols
from hadpsgd.corpus.lang.lexicon_fst import WORD_END, WORD_START
from hadpsgd.decoding.grammar import Grammar, State
from hadpsgd.decoding.lattice import Lattice
from hadpsgd.decoding.ngram_states import NgramStates, States
from hadpsgd.decoding.spelled_states import SpelledStates
from hadpsgd.graph.rescoring import FOLDER, NEW, OLD, SPELLING, spelling_costs
from hadpsgd.lm import stored


@dataclass
class Rescorer:
    """Takes the first pass's grammar out of a lattice and puts another one in."""

    old: Grammar
    new: Grammar

    @classmethod
    def of_graph(cls, folder: Path) -> Rescorer | None:
        """What a graph folder of a pruned model holds; None where it has the full model.

        Raises:
            UserError: its files are missing or damaged.
        """
        models = folder / FOLDER
        if not models.exists():
            return None
        numbers = read_symbols(folder / "words.txt")
        old, new = (NgramStates(stored.read(models / name), numbers) for name in (OLD, NEW))
        if (costs := spelling_costs(folder)) is None:
            return cls(Grammar(old), Grammar(new))
        spelling = NgramStates(stored.read(models / SPELLING), numbers)

        def with_spelling(words: States) -> Grammar:
            return Grammar(
                SpelledStates(
                    words=words,
                    spelling=spelling,
                    begin=numbers[WORD_START],
                    end=numbers[WORD_END],
                    cost=costs[0],
                    scale=costs[1],
                )
            )

        return cls(with_spelling(old), with_spelling(new))

    def __call__(self, lattice: Lattice) -> Lattice:
        """The lattice with new graph costs; states are split where histories differ.

        The graph cost of a path changes by what the new grammar takes for its words less what
        the old one took, ends included.

        Raises:
            UserError: a word that the new grammar lacks.
        """
        return lattice if lattice.num_states == 0 else _Splitter(self, lattice).lattice()


_Histories = tuple[State, State]
_NO_ROWS = np.zeros((0, 5), np.int64)


class _Splitter:
    """Splits the states of one lattice by the states of both grammars."""

    def __init__(self, models: Rescorer, lattice: Lattice) -> None:
        self.models, self.source = models, lattice
        (old, old_start), (new, new_start) = models.old.start(), models.new.start()
        self.at_start = new - old
        # of every state: the histories that lead there, numbered
        self.histories: list[dict[_Histories, int]] = [{} for _ in range(lattice.num_states)]
        self.histories[0][old_start, new_start] = 0

    def lattice(self) -> Lattice:
        """The split lattice, its states still in topological order."""
        lattice = self.source
        first, labels = lattice.first.tolist(), lattice.arcs["olabel"].tolist()
        targets = lattice.arcs["next"].tolist()
        rows, extras = array("q"), array("d")  # lists would take ten times as much
        for state in range(lattice.num_states):
            for histories, own in self.histories[state].items():
                for arc in range(first[state], first[state + 1]):
                    extra, after = 0.0, histories
                    if labels[arc]:
                        extra, after = self._step(histories, labels[arc])
                    there = self.histories[targets[arc]]
                    place = there.setdefault(after, len(there))
                    rows.extend((state, own, arc, targets[arc], place))
                    extras.append(extra)
        numbers = np.frombuffer(rows, np.int64).reshape(-1, 5) if rows else _NO_ROWS
        return self._assemble(numbers, np.array(extras))

    def _step(self, histories: _Histories, word: int) -> tuple[float, _Histories]:
        """What a word costs more in the new grammar, and the histories after it."""
        old, old_after = self.models.old.step(histories[0], word)
        new, new_after = self.models.new.step(histories[1], word)
        return new - old, (old_after, new_after)

    def _assemble(self, rows: NDArray[np.int64], extras: NDArray[np.float64]) -> Lattice:
        lattice = self.source
        sizes = np.array([len(histories) for histories in self.histories])
        base = np.concatenate([[0], np.cumsum(sizes)])
        sources = base[rows[:, 0]] + rows[:, 1]
        order = np.argsort(sources, kind="stable")
        sources, rows = sources[order], rows[order]
        first = np.concatenate([[0], np.cumsum(np.bincount(sources, minlength=int(base[-1])))])
        final = lattice.final[np.repeat(np.arange(lattice.num_states), sizes)]
        final[:, 0] += np.float32(self.at_start)
        ending = np.flatnonzero(np.isfinite(lattice.final[:, 0]))
        for state in ending.tolist():
            for (old, new), number in self.histories[state].items():
                before, after = self.models.old.final(old), self.models.new.final(new)
                # in a partial lattice paths end where no sentence does: nothing was paid there
                if np.isfinite(before) and np.isfinite(after):
                    final[base[state] + number, 0] += after - before
        split = lattice.rebuilt(final, first.astype(np.int64), rows[:, 2])
        split.arcs["next"] = base[rows[:, 3]] + rows[:, 4]
        split.arcs["graph"] += extras[order].astype(np.float32)
        return split
