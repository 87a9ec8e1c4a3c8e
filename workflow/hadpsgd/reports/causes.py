"""Why a sentence is wrong: did the search lose the right words, or do the models prefer others?"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from hadpsgd.corpus.datadir import DataDir, Utterance
from hadpsgd.corpus.stm import Segment
from hadpsgd.decoding.decode import Scorer, dealt
from hadpsgd.decoding.lattice import Path as LatticePath
from hadpsgd.decoding.lattice import Scaling, best_paths
from hadpsgd.decoding.reference import ReferenceGraph
from hadpsgd.decoding.said import Said, Vocabulary
from hadpsgd.parallel import map_in_order
from hadpsgd.progress import Progress
from hadpsgd.scoring.formats import TimedWord
from hadpsgd.scoring.hypotheses import Timer, Words, lattices
from hadpsgd.scoring.nist import Sentence
from hadpsgd.scoring.places import places

SEARCH, MODEL, UNKNOWN, NO_PATH, UNTESTED = CAUSES = (
    "search error",
    "model error",
    "unknown word",
    "no path",
    "not tested",
)
_NEAR = 0.25  # seconds between borders of a segment of an STM and its utterance
_BATCH = 16  # references aligned side by side
_SLACK = 0.01  # costs are sums of thousands of 32-bit numbers


@dataclass(frozen=True)
class Cause:
    """Why the recogniser did not say the reference.

    kind: one of CAUSES. margin: what the best path of the reference costs more than the path
    that was found, in scaled negative log probability; below 0 for search errors. unknown: words
    of the reference outside the vocabulary. said: the words of that path with their times in the
    recording, a forced alignment; none where it was not made.
    """

    kind: str
    margin: float | None = None
    unknown: tuple[str, ...] = ()
    said: tuple[TimedWord, ...] = ()


Job = tuple[str, Said]
"""An utterance and what it says."""
Judged = tuple[str, float | None, tuple[TimedWord, ...]]
"""An utterance, the cost of its reference's best path (None: there is none), the words on it."""


@dataclass(frozen=True)
class Judge:
    """Makes, in each process, the function from utterances to the costs of their references.

    The graph is already loaded and is shared by forked processes. With a timer the words of the
    best paths are told, too.
    """

    graph: ReferenceGraph
    make_scorer: Callable[[], Scorer]
    scaling: Scaling
    timer: Timer | None = None

    def __call__(self) -> Callable[[Sequence[Job]], list[Judged]]:
        """The function: jobs → what is found of each."""
        scorer = self.make_scorer()

        def judge(jobs: Sequence[Job]) -> list[Judged]:
            scores = [scorer(utterance) for utterance, _ in jobs]
            paths = self.graph.best_paths([said for _, said in jobs], scores, self.scaling)
            return [self._judged(name, path) for (name, _), path in zip(jobs, paths, strict=True)]

        return judge

    def _judged(self, utterance: str, path: LatticePath | None) -> Judged:
        if path is None:
            return utterance, None, ()
        words = tuple(self.timer.timed(utterance, path)) if self.timer else ()
        return utterance, path.cost, words


def found_costs(
    folder: Path, data: DataDir, scaling: Scaling, wanted: Container[str]
) -> dict[str, float]:
    """Cost of the best path of the utterances `wanted` of a decoding folder."""
    return {
        utterance: best_paths(lattice, [scaling])[0].cost
        for utterance, lattice in lattices(folder, data, wanted)
    }


def causes(
    judge: Judge,
    data: DataDir,
    words: Words,
    found: Mapping[str, float],
    partial: Iterable[str],
    wrong: Sequence[str],
    jobs: int = 1,
) -> Iterator[tuple[str, Cause]]:
    """Yield (utterance, cause) for each of the utterances `wrong`.

    Args:
        judge: gives the costs of references.
        data: their references.
        words: the vocabulary.
        found: costs of the paths that the search found.
        partial: utterances whose paths reach no final state: lost by the search.
        wrong: the utterances.
        jobs: processes.
    """
    numbers = {name: number for number, name in words.names.items()}
    vocabulary = Vocabulary(numbers, words.pieces)
    cut = set(partial)
    tested: list[Job] = []
    for utterance in wrong:
        said = words.filters.heard(data.utterances[utterance].text)
        if unknown := vocabulary.unknown(said):
            yield utterance, Cause(UNKNOWN, None, unknown)
        else:
            tested.append((utterance, vocabulary.said(said)))
    progress = Progress("errors", len(tested), "references")
    batches = list(chain.from_iterable(dealt(tested, size=_BATCH, jobs=jobs)))
    for results in map_in_order(judge, batches, jobs) if tested else ():
        progress.add(len(results))
        for utterance, cost, path in results:
            cause = _cause(cost, found.get(utterance, np.inf), utterance in cut)
            yield utterance, replace(cause, said=path)


def _cause(reference: float | None, found: float, cut: bool) -> Cause:
    if reference is None:
        return Cause(NO_PATH)
    if cut or not np.isfinite(found):
        return Cause(SEARCH)
    margin = reference - found
    return Cause(SEARCH if margin < -_SLACK else MODEL, margin)


def utterances_of(sentences: Iterable[Sentence], data: DataDir) -> dict[str, str]:
    """Name of each scored segment to the utterance that it is; those without one are left out.

    Their borders need not be the same: Kaldi's s5c extends utterances by 0.1 s on both sides.
    """
    placed = places(data)
    there: dict[tuple[str, str], list[Utterance]] = {}
    for utterance in data:
        file, channel = placed[utterance.id]
        there.setdefault((file.lower(), channel.lower()), []).append(utterance)
    found = {}
    for sentence in sentences:
        if (segment := sentence.segment) and (near := there.get(segment.key)):
            apart, name = min((_apart(each, segment), each.id) for each in near)
            if apart < _NEAR:
                found[sentence.name] = name
    return found


def _apart(utterance: Utterance, segment: Segment) -> float:
    """Seconds between the borders of an utterance and a segment that are further apart."""
    end = segment.end if utterance.end is None else utterance.end
    return max(abs(utterance.start - segment.begin), abs(end - segment.end))


def summary(found: Mapping[str, Cause], errors: Mapping[str, int]) -> dict[str, Any]:
    """Sentences and word errors of each cause.

    Args:
        found: cause by sentence.
        errors: word errors by sentence.
    """
    table = {kind: {"sentences": 0, "errors": 0} for kind in CAUSES}
    for name, cause in found.items():
        table[cause.kind]["sentences"] += 1
        table[cause.kind]["errors"] += errors[name]
    return table
