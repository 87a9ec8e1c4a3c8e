"""Hypotheses out of a decoding folder: words of every utterance under a scaling, with times."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hadpsgd.corpus.datadir import DataDir
from hadpsgd.corpus.lang import joined
from hadpsgd.corpus.stm import Segment
from hadpsgd.decoding import lattice_io
from hadpsgd.decoding.confidence import confidences
from hadpsgd.decoding.consensus import consensus
from hadpsgd.decoding.consensus_path import consensus_path
from hadpsgd.decoding.lattice import Lattice, Scaling, best_paths
from hadpsgd.decoding.lattice import Path as LatticePath
from hadpsgd.decoding.word_times import FRAME_SHIFT, WordAligner, phone_spans
from hadpsgd.errors import UserError
from hadpsgd.graph.transitions import Transitions
from hadpsgd.progress import tracked
from hadpsgd.scoring.filters import Filters
from hadpsgd.scoring.formats import TimedWord
from hadpsgd.scoring.places import Place, places
from hadpsgd.scoring.rescoring import Rescoring
from hadpsgd.texts import words_of


@dataclass(frozen=True)
class Words:
    """Names of word ids; `filters` say which are left out of hypotheses.

    pieces: the names are pieces of words, which are put together.
    """

    names: dict[int, str]
    filters: Filters
    pieces: bool = False
    path: Path | None = None
    """Where they are read from."""

    @classmethod
    def read(cls, folder: Path, filters: Filters) -> Words:
        """Read `words.txt` of a decoding folder.

        Raises:
            UserError: it is missing, empty or damaged.
        """
        path = Path(folder) / "words.txt"
        try:
            lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
            rows = (words_of(line) for line in lines if line)
            names = {int(number): name for name, number in rows}
        except FileNotFoundError:
            raise UserError("missing", where=path, fix="Decode again") from None
        except ValueError:
            raise UserError("not lines of `word number`", where=path) from None
        if not names:
            raise UserError("no words", where=path, fix="Decode again")
        return cls(names, filters, joined.is_pieces(names.values()), path)

    @cached_property
    def inside(self) -> frozenset[int]:
        """Labels that begin no word but go on with one that is spelled."""
        if not self.pieces:
            return frozenset()
        return frozenset(n for n, name in self.names.items() if not joined.begins_word(name))

    @cached_property
    def silent(self) -> frozenset[int]:
        """Labels that are left out of hypotheses."""
        return frozenset(number for number, name in self.names.items() if self.filters.drop(name))

    def words(self, ids: Sequence[int]) -> list[tuple[str, range]]:
        """The words that count, each with the places of its ids.

        Raises:
            UserError: there is no such id.
        """
        try:
            names = [self.names[number] for number in ids]
        except KeyError as error:
            what = f"lacks word {error}, which a lattice has"
            raise UserError(what, where=self.path, fix="Decode again") from None
        places = joined.groups(names) if self.pieces else [range(i, i + 1) for i in range(len(ids))]
        found = [(joined.joined([names[i] for i in place]), place) for place in places]
        return [(word, place) for word, place in found if word and not self.filters.drop(word)]

    def spoken(self, ids: Sequence[int]) -> list[str]:
        """Names of the words that count, acronyms as references write them."""
        return [part for word, _ in self.words(ids) for part in self.filters.written(word)]


def lattices(
    folder: Path, data: DataDir, wanted: Container[str] | None = None
) -> Iterator[tuple[str, Lattice]]:
    """Yield (utterance, lattice) of a decoding folder; only of those `wanted`, if given.

    Raises:
        UserError: an utterance that the data lacks.
    """
    stored = lattice_io.read(folder, wanted)
    if wanted is None:
        stored = tracked(stored, len(data), what="lattices", unit="utterances")
    for utterance, found in stored:
        if utterance not in data.utterances:
            what = f"the data has no utterance {utterance}"
            raise UserError(what, where=folder, fix=f"Decode {data.path}")
        yield utterance, found


def texts(
    folder: Path,
    data: DataDir,
    words: Words,
    scalings: Sequence[Scaling],
    *,
    risk: bool = False,
    neural: Rescoring | None = None,
) -> Iterator[tuple[str, list[str]]]:
    """Yield (utterance, its text under each scaling); raises as `lattices`.

    risk: of least expected errors, not of the best path. neural: by the neural language model,
    with its own `risk`.
    """
    for utterance, found in lattices(folder, data):
        said: list[Sequence[int]]
        if neural:
            said = neural.words(utterance, found, scalings, words.silent)
        elif risk:
            said = [consensus(found, scaling, words.silent).words for scaling in scalings]
        else:
            said = [path.words.tolist() for path in best_paths(found, scalings)]
        yield utterance, [" ".join(words.spoken(ids)) for ids in said]


@dataclass
class Timer:
    """Turns paths into timed words of their recordings."""

    words: Words
    transitions: Transitions
    aligner: WordAligner
    data: DataDir

    @cached_property
    def places(self) -> dict[str, Place]:
        """File and channel of every utterance's words."""
        return places(self.data)

    @classmethod
    def read(cls, folder: Path, words: Words, data: DataDir) -> Timer:
        """Open what a decoding folder holds for it."""
        transitions = Transitions.read(folder / "transitions.npz")
        return cls(words, transitions, WordAligner.read(folder), data)

    def timed(
        self, utterance: str, path: LatticePath, sure: Sequence[float] | None = None
    ) -> list[TimedWord]:
        """The words of an utterance with times in its recording and, if given, confidences."""
        entry = self.data.utterances[utterance]
        file, channel = self.places[utterance]
        self.transitions.check(path.transitions, f"lattice of {utterance}")
        spans = self.aligner.words(path, phone_spans(path, self.transitions))
        timed: list[TimedWord] = []
        for word, place in self.words.words(path.words.tolist()):
            begin, end = spans[place[0]].begin, spans[place[-1]].end
            known = min(sure[i] for i in place) if sure else None
            start = entry.start + begin * FRAME_SHIFT
            whole = TimedWord(
                file=file,
                channel=channel,
                begin=start,
                duration=(end - begin) * FRAME_SHIFT,
                word=word,
                confidence=known,
            )
            timed += self.words.filters.spread(whole)
        return timed


@dataclass(frozen=True)
class Recognised:
    """What an utterance says: words with times and confidences, its text, its frames."""

    utterance: str
    words: list[TimedWord]
    text: str
    frames: int


def recognised(
    folder: Path,
    timer: Timer,
    scaling: Scaling,
    *,
    risk: bool = False,
    neural: Rescoring | None = None,
) -> Iterator[Recognised]:
    """Yield what each utterance of a decoding folder says by its best path under a scaling.

    risk: by least expected errors instead. neural: by the neural language model, with its own
    `risk`.
    """
    for utterance, found in lattices(folder, timer.data):
        if neural:
            path, sure = neural.path(utterance, found, scaling, timer.words.silent)
        elif risk:
            path, sure = consensus_path(found, scaling, timer.words.silent)
        else:
            path = best_paths(found, [scaling])[0]
            sure = confidences(found, path, scaling)
        yield Recognised(
            utterance,
            timer.timed(utterance, path, sure),
            " ".join(timer.words.spoken(path.words.tolist())),
            len(path.transitions),
        )


def segments(data: DataDir, seconds: dict[str, float]) -> list[Segment]:
    """Reference segments of a data directory, in NIST's order; `seconds` are lengths where the
    directory says no end."""
    made = []
    placed = places(data)
    for entry in data:
        file, channel = placed[entry.id]
        end = entry.end if entry.end is not None else entry.start + seconds.get(entry.id, 0.01)
        made.append(
            Segment(
                file=file,
                channel=channel,
                speaker=entry.speaker,
                begin=entry.start,
                end=end,
                text=entry.text,
            )
        )
    return sorted(made, key=lambda s: (s.file, s.channel, s.begin))
