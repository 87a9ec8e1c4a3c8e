"""Utterances through the search in parallel processes, into a folder of lattices."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, TypeVar

from hadpsgd.config.decoding import OF_ENSEMBLES
from hadpsgd.corpus.lang.directory import read_symbols
from hadpsgd.decoding import lattice_io
from hadpsgd.decoding.scores import Scores
from hadpsgd.decoding.search import TOGETHER, Found, Searcher
from hadpsgd.decoding.word_times import FRAME_SHIFT
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_folder
from hadpsgd.parallel import map_in_order
from hadpsgd.progress import Progress
from hadpsgd.skipped import check_skipped

Scorer = Callable[[str], Scores]
"""Utterance to log-likelihoods, float32 [frames, pdfs]."""

Item = TypeVar("Item")

# what all processes have in work at a time, in utterances, of which a process itself takes as much
# memory as some; and bytes of scores
_WORK, _PROCESS, _SCORES = 112, 8, 1 << 27
_LEAST = 4  # utterances each: with fewer, the search is slower
# what is held until lattices are written: utterances of all processes together, or, where these
# may be long, frames of each process
_HELD, FRAMES = 192, 8000
_FEW = 12  # of these, utterances that a process searches at a time: not pruned yet, they take most

# what scoring needs of the graph: words, and phones with their transition-ids for word times
_KEPT = ("words.txt", "phones.txt", "transitions.npz")


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Of each utterance: name, what was found, entry in the archive; and processor seconds."""

    results: list[tuple[str, Found, bytes]]
    scoring: float
    search: float


@dataclass(frozen=True, kw_only=True)
class Work:
    """Makes, in each process, the function that decodes an utterance.

    `make_scorer` is called there; the graph is already loaded and is shared by forked processes.
    """

    searcher: Searcher
    make_scorer: Callable[[], Scorer]
    lanes: int = TOGETHER
    """Utterances that each process searches at a time."""
    room: int = _SCORES
    """Bytes of scores in each process at a time; those of one utterance may be more."""
    noted: Mapping[str, Any] = field(default_factory=dict)
    """What else decode.json says of the models."""

    def __call__(self) -> Callable[[Sequence[str]], Batch]:
        """The function that decodes utterances."""
        scorer, searcher = self.make_scorer(), self.searcher

        def decode(utterances: Sequence[str]) -> Batch:
            scoring, packing = 0.0, 0.0

            def scored() -> Iterator[Scores]:
                nonlocal scoring
                for utterance in utterances:
                    began = time.process_time()
                    scores = scorer(utterance)
                    scoring += time.process_time() - began
                    yield scores

            began, packed = time.process_time(), []
            try:
                found = searcher.search(scored(), together=self.lanes, room=self.room)
                for utterance, each in zip(utterances, found, strict=True):
                    at = time.process_time()
                    packed.append(_packed(utterance, each))
                    packing += time.process_time() - at
            except UserError as error:
                raise self._named(error, utterances, scorer) from None
            search = time.process_time() - began - scoring - packing
            return Batch(results=packed, scoring=scoring, search=search)

        return decode

    def _named(self, error: UserError, utterances: Sequence[str], scorer: Scorer) -> UserError:
        """The error with the utterance that it is about."""
        for utterance in utterances:
            try:
                self.searcher(scorer(utterance))
            except UserError as single:
                return UserError(str(single), where=f"utterance {utterance}")
        return error


def _packed(utterance: str, found: Found) -> tuple[str, Found, bytes]:
    if found.lattice is None:
        return utterance, found, b""
    content = lattice_io.entry(utterance, found.lattice)
    return utterance, replace(found, lattice=None), content


@dataclass(kw_only=True)
class Tally:
    """What was decoded and what was not."""

    utterances: int = 0
    frames: int = 0
    partial: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    narrowed: list[str] = field(default_factory=list)
    """Their lattices were too large for decoding.lattice_beam."""
    scoring: float = 0.0
    """Processor seconds that scores took, of all processes together."""
    search: float = 0.0
    """Processor seconds that the search took, of all processes together."""

    def add(self, utterance: str, found: Found, kept: bool) -> None:
        """Count an utterance."""
        self.utterances += 1
        self.frames += found.frames
        if found.narrowed:
            self.narrowed.append(utterance)
        if not kept:
            self.failed.append(utterance)
        elif found.partial:
            self.partial.append(utterance)


def decode(
    work: Work,
    utterances: Sequence[str],
    out: Path,
    *,
    jobs: int,
    max_failed: float,
    told: Callable[[int], None] | None = None,
    frames: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Decode utterances into OUT/lat.1.gz and OUT/decode.json; returns what the latter says.

    Args:
        work: makes what decodes them.
        utterances: their names.
        out: the folder.
        jobs: processes.
        max_failed: share of the utterances that may have no path.
        told: called now and then with the number of utterances that were decoded since.
        frames: of each utterance. With them memory has a bound, however long and many these are: a
            process holds at most FRAMES at a time, or one utterance that has more, and searches a
            few of these side by side.

    Raises:
        UserError: more utterances without any path than `max_failed` allows, bad scores, or a
            graph folder that lacks what scoring needs.
    """
    _check_graph(work.searcher)
    tally, began = Tally(), time.monotonic()
    progress = Progress("decode", len(utterances), "utterances")
    with atomic_folder(out) as folder:
        with (folder / "lat.1.gz").open("wb") as archive:
            lanes = lanes_of(jobs) if frames is None else min(lanes_of(jobs), _FEW)
            work = replace(work, lanes=lanes, room=_SCORES // jobs)
            if jobs > 1:
                work.searcher.warm()
            if frames is None:
                rounds = dealt(utterances, size=max(_LEAST, _HELD // jobs), jobs=jobs)
            else:
                rounds = dealt_by_frames(utterances, frames, most=FRAMES, jobs=jobs)
            batches = map_in_order(work, chain.from_iterable(rounds), jobs)
            for dealt_out in rounds:
                done = list(islice(batches, len(dealt_out)))
                tally.scoring += sum(batch.scoring for batch in done)
                tally.search += sum(batch.search for batch in done)
                for utterance, found, packed in in_turn([batch.results for batch in done]):
                    archive.write(packed)
                    tally.add(utterance, found, bool(packed))
                progress.add(sum(map(len, dealt_out)))
                if told is not None:
                    told(sum(map(len, dealt_out)))
        report = _report(work, tally, time.monotonic() - began, jobs)
        _check(tally, max_failed, out)
        (folder / "num_jobs").write_text("1\n")
        (folder / "decode.json").write_text(json.dumps(report, indent=2) + "\n")
        for name in _KEPT:
            shutil.copyfile(work.searcher.folder / name, folder / name)
        shutil.copytree(work.searcher.folder / "phones", folder / "phones")
    _say(report)
    return report


def lanes_of(jobs: int) -> int:
    """Utterances that each of so many processes searches at a time."""
    return min(TOGETHER, max(_LEAST, _WORK // jobs - _PROCESS))


def dealt(items: Sequence[Item], *, size: int, jobs: int) -> list[list[Sequence[Item]]]:
    """Rounds of batches of at most `size` items, in each round one for every process.

    Items are dealt out in turn: neighbours are alike (utterances of a speaker, of a length), so the
    batches of a round take about the same time.
    """
    rounds = max(1, -(-len(items) // (max(size, 1) * jobs)))
    bounds = [len(items) * i // rounds for i in range(rounds + 1)]
    hands = [items[low:high] for low, high in pairwise(bounds)]
    return [[hand[job::jobs] for job in range(min(jobs, len(hand)))] for hand in hands]


def dealt_by_frames(
    items: Sequence[str], frames: Mapping[str, int], *, most: int, jobs: int
) -> list[list[Sequence[str]]]:
    """The same with batches of at most `most` frames, or of a single item that has more."""
    rounds: list[list[list[str]]] = [[]]
    place, used = 0, [0] * jobs
    for item in items:
        if used[place] and used[place] + frames[item] > most:
            rounds.append([])
            place, used = 0, [0] * jobs
        if len(rounds[-1]) == place:
            rounds[-1].append([])
        rounds[-1][place].append(item)
        used[place] += frames[item]
        place = (place + 1) % jobs
    return [list[Sequence[str]](hands) for hands in rounds]


def in_turn(batches: Sequence[Sequence[Item]]) -> Iterator[Item]:
    """The items of a round in the order in which they were dealt."""
    for place in range(max(map(len, batches), default=0)):
        yield from (batch[place] for batch in batches if place < len(batch))


def _check_graph(searcher: Searcher) -> None:
    for name in (*_KEPT, "phones/align_lexicon.int"):
        if not (searcher.folder / name).exists():
            raise UserError("missing", where=searcher.folder / name, fix="Make the graph again")
    path = searcher.folder / "words.txt"
    lacking = set(searcher.words.tolist()).difference(read_symbols(path).values(), [0])
    if lacking:
        what = f"lacks {len(lacking)} words of HCLG.fst, such as number {min(lacking)}"
        raise UserError(what, where=path, fix="Make the graph again")


def _check(tally: Tally, max_failed: float, out: Path) -> None:
    if tally.utterances == 0:
        raise UserError("no utterances to decode", where=out)
    check_skipped(
        tally.failed,
        total=tally.utterances,
        limit=max_failed,
        what="utterances have no path",
        where=out,
        fix="Widen decoding.beam, or check that model, graph and features belong together",
    )


def _report(work: Work, tally: Tally, seconds: float, jobs: int) -> dict[str, Any]:
    options = work.searcher.options.model_dump(mode="json", exclude={*OF_ENSEMBLES})
    speech = max(tally.frames * FRAME_SHIFT, 1e-9)
    return {
        "utterances": tally.utterances,
        "frames": tally.frames,
        "partial": tally.partial,
        "failed": tally.failed,
        "narrowed": tally.narrowed,
        "seconds": round(seconds, 3),
        "jobs": jobs,
        "real_time_factor": round(seconds * jobs / speech, 5),
        "search_real_time_factor": round(tally.search / speech, 5),
        "scoring_real_time_factor": round(tally.scoring / speech, 5),
        **work.noted,
        "options": options,
    }


def _say(report: dict[str, Any]) -> None:
    print(
        f"{report['utterances']} utterances, {report['frames']} frames in {report['seconds']:.1f} s"
        f" ({report['jobs']} processes, real-time factor {report['real_time_factor']:.4f} each)",
        file=sys.stderr,
    )
    for key, what in (
        ("partial", "utterances reached no final state"),
        ("narrowed", "lattices were too large and have a narrower beam"),
    ):
        if names := report[key]:
            print(f"warning: {len(names)} {what}: {', '.join(names[:5])}", file=sys.stderr)
