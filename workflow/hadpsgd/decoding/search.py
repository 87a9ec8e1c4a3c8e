"""Search of utterances through HCLG: lattices, or best paths alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import kaldi_decoder
import kaldifst
import numpy as np
from numpy.typing import NDArray

from hadpsgd.config.decoding import Decoding
from hadpsgd.decoding import lattice_io
from hadpsgd.decoding.assembly import lattices
from hadpsgd.decoding.determinise import determinised
from hadpsgd.decoding.heap import give_back
from hadpsgd.decoding.lanes import Lanes
from hadpsgd.decoding.lattice import Lattice, Scaling
from hadpsgd.decoding.pruning import Pruner
from hadpsgd.decoding.rescore import Rescorer
from hadpsgd.decoding.scores import LongScores, Scores, check_finite
from hadpsgd.decoding.search_graph import Indices, SearchGraph
from hadpsgd.decoding.token_passing import Beams, TokenPassing
from hadpsgd.errors import UserError
from hadpsgd.graph import arrays
from hadpsgd.graph.transitions import Transitions

TOGETHER = 96  # utterances that a process searches at a time
_PRUNE_EVERY, _PRUNE_BACK = 50, 65  # frames
_LABELS = 1 << 20  # looked at together
_ARCS = 1 << 17  # of lattices that are determinised together: more save no time, but take memory

_Left = tuple[Lattice | None, bool, bool]
"""Of an utterance the lattice, whether it is partial, and whether it was too large."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What the search left of an utterance.

    lattice: acoustic costs not scaled; None if there is no path. partial: no final state was
    reached, so that the paths end anywhere. narrowed: the lattice was too large and has a narrower
    beam.
    """

    frames: int
    lattice: Lattice | None
    partial: bool = False
    narrowed: bool = False


class Searcher:
    """A graph with its options. Load it before processes fork: they then share its memory.

    words: int64, the numbers of the words on its arcs, 0 among them.

    Pickled, it is only its folder; the graph is loaded again where it arrives.
    """

    def __init__(self, folder: Path, options: Decoding) -> None:
        self.folder, self.options = Path(folder), options
        self._load()

    def _load(self) -> None:
        path = self.folder / "HCLG.fst"
        self.transitions = Transitions.read(self.folder / "transitions.npz")
        graph = arrays.read(path)
        self.transitions.check_graph(graph, path)
        self.words = _different(graph.arcs["olabel"])
        if self.options.one_best:
            self._fst = kaldifst.StdConstFst(arrays.to_fst(graph))
        else:
            self._graph = SearchGraph.of(graph)
            self._columns = self.transitions.pdf[self._graph.emitting.label].astype(np.int32)
        self._rescorer = Rescorer.of_graph(self.folder)
        del graph
        give_back()

    def rescaled(self, acoustic_scale: float) -> Searcher:
        """One that searches the same graph, which both share, with another acoustic scale."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.options = self.options.model_copy(update={"acoustic_scale": acoustic_scale})
        return other

    def __getstate__(self) -> tuple[Path, Decoding]:
        return self.folder, self.options

    def __setstate__(self, state: tuple[Path, Decoding]) -> None:
        self.folder, self.options = state
        self._load()

    def search(
        self, scores: Iterable[Scores], *, together: int = TOGETHER, room: float = np.inf
    ) -> Iterator[Found]:
        """Search utterances, side by side; yields what is found of each, in their order.

        Args:
            scores: of each, float32 [frames, pdfs], log-likelihoods (of a network: log-posteriors
                minus log-priors), not scaled; taken when it is their turn.
            together: utterances searched at a time.
            room: bytes of scores at a time; those of a single utterance may be more.

        Raises:
            UserError: another number of pdfs than the graph's, or NaN.
        """
        frames: deque[int] = deque()

        def some() -> Iterator[Scores]:
            for matrix in scores:
                self._check(matrix)
                frames.append(len(matrix))
                if len(matrix):
                    yield matrix

        search = self._best if self.options.one_best else self._all
        for lattice, partial, narrowed in search(some(), together, room):
            while not (count := frames.popleft()):
                yield Found(frames=0, lattice=None)
            yield Found(frames=count, lattice=lattice, partial=partial, narrowed=narrowed)
        yield from (Found(frames=0, lattice=None) for _ in frames)

    def __call__(self, scores: Scores) -> Found:
        """Search one utterance."""
        (found,) = self.search([scores])
        return found

    def warm(self) -> None:
        """Search something, before processes fork: what is made at first use (NumPy's tables of
        loops and types, some 5 MiB) is then shared too."""
        self(np.zeros((3, self.transitions.num_pdfs), np.float32))

    def _check(self, scores: Scores) -> None:
        if scores.ndim != 2 or scores.shape[1] != self.transitions.num_pdfs:
            raise UserError(
                f"scores of shape {scores.shape} for a graph of {self.transitions.num_pdfs} pdfs",
                fix="Model and graph must come from the same alignments",
            )
        if not isinstance(scores, LongScores):  # of those it is seen when they are made
            check_finite(scores)

    def _all(self, scores: Iterator[Scores], together: int, room: float) -> Iterator[_Left]:
        """Lattices of words."""
        options = self.options
        beams = Beams(
            beam=options.beam, lattice_beam=options.lattice_beam, max_active=options.max_active
        )
        lanes = Lanes(scores, count=together, room=room)
        found = all_paths(self._graph, self._columns, lanes, options.acoustic_scale, beams)
        some: list[tuple[Lattice | None, bool]] = []
        for lattice, partial in found:
            some.append((lattice, partial))
            if sum(len(each.arcs) for each, _ in some if each is not None) > _ARCS:
                yield from self._determinised(some)
                some = []
        yield from self._determinised(some)

    def _determinised(self, found: Sequence[tuple[Lattice | None, bool]]) -> Iterator[_Left]:
        """Lattices with every word sequence once, by the full language model if there is one."""
        whole = [lattice for lattice, _ in found if lattice is not None]
        scaling, beam = (
            Scaling(acoustic_scale=self.options.acoustic_scale),
            self.options.lattice_beam,
        )
        small = iter(determinised(whole, scaling, beam))
        for lattice, partial in found:
            if lattice is None:
                yield None, partial, False
                continue
            words, taken = next(small)
            if self._rescorer is not None:
                words = self._rescorer(words)
            yield words, partial, taken < beam

    def _best(self, scores: Iterator[Scores], _together: int, _room: float) -> Iterator[_Left]:
        """Lattices of the best path alone, one utterance after another."""
        options = kaldi_decoder.FasterDecoderOptions(
            beam=self.options.beam, max_active=self.options.max_active
        )
        pdfs, scale = self.transitions.pdf[1:], np.float32(self.options.acoustic_scale)
        for matrix in scores:
            decoder = kaldi_decoder.FasterDecoder(self._fst, options)
            decoder.init_decoding()
            rows = matrix.rows if isinstance(matrix, LongScores) else len(matrix)
            for begin in range(0, len(matrix), rows):
                # it reads column ilabel - 1: one column for each transition-id
                spread = (matrix[begin : begin + rows] * scale).take(pdfs, axis=1)
                decoder.advance_decoding(kaldi_decoder.DecodableCtc(spread, begin))
            ok, path = decoder.get_best_path()
            partial = not decoder.reached_final()
            if not ok or path.num_states == 0:
                yield None, partial, False
                continue
            found = lattice_io.of_kaldifst(path)
            found.arcs["acoustic"] /= scale
            found.final[:, 1] /= scale
            yield found, partial, False


def _different(labels: NDArray[np.int32]) -> Indices:
    """The different labels; little by little, as indices are copied."""
    used = np.zeros(labels.max(initial=0) + 1, np.bool_)
    for low in range(0, len(labels), _LABELS):
        used[labels[low : low + _LABELS]] = True
    return used.nonzero()[0]


def all_paths(
    graph: SearchGraph,
    columns: NDArray[np.integer],
    lanes: Lanes,
    acoustic_scale: float,
    beams: Beams,
    starts: Indices | None = None,
) -> Iterator[tuple[Lattice | None, bool]]:
    """Yield the lattices of utterances searched side by side, and whether they are partial.

    Args:
        graph: what is searched.
        columns: integers [emitting arcs], the column of scores that each arc reads.
        lanes: the utterances, with scores of as many columns.
        acoustic_scale: their scale while searching; lattices keep acoustic costs without it.
        beams: limits.
        starts: int64 [utterances], where each one starts; None: where the graph does.
    """
    if not lanes.going_on(0):
        return
    passing = TokenPassing(graph, columns, lanes, acoustic_scale, beams, starts)
    pruner = Pruner(graph, beams.lattice_beam)
    while passing.advance():
        time = len(passing.frames) - 1
        if time % _PRUNE_EVERY == 0:
            pruner.prune(passing.frames, max(0, time - _PRUNE_BACK))
            give_back()
    pruner.prune(passing.frames)
    give_back()
    for number, lattice in enumerate(lattices(passing)):
        yield lattice, number in pruner.partial
