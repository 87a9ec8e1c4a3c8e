"""Sides of telephone calls as a data directory; utterances without audio are left out, counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hadpsgd.corpus import audio
from hadpsgd.corpus.datadir import DataDir, Utterance, sample_range
from hadpsgd.corpus.validate import SHORTEST
from hadpsgd.errors import UserError
from hadpsgd.skipped import check_skipped


def sides(
    folder: Path,
    said: Iterable[Utterance],
    calls: Mapping[str, Path],
    *,
    limit: float,
    threads: int,
    where: object,
) -> DataDir:
    """A data directory of the utterances whose recordings are there and long enough.

    Args:
        folder: what it will be.
        said: utterances, whose recordings are named `<call>-<A or B>`.
        calls: recordings of two channels, by the name of the call.
        limit: share of the utterances that may be left out.
        threads: headers read at a time.
        where: what to name where there are more.

    Raises:
        UserError: more are left out, or a recording is damaged.
    """
    every = sorted(said, key=lambda u: u.id)
    wanted = sorted({_call(u) for u in every} & calls.keys())
    with ThreadPoolExecutor(threads) as pool:
        places = (str(calls[name].absolute()) for name in wanted)
        headers = dict(zip(wanted, pool.map(audio.info, places), strict=True))
    kept, skipped = {}, []
    for utterance in every:
        header = headers.get(_call(utterance))
        if header is None or not _fits(utterance, header):
            skipped.append(utterance.id)
        else:
            kept[utterance.id] = utterance
    check_skipped(
        skipped,
        total=len(every),
        limit=limit,
        what="utterances have no recording, or lie beyond its end",
        where=where,
        fix="Copy what is missing, or raise corpus.max_skipped",
    )
    used = sorted({u.recording for u in kept.values()})
    return DataDir(
        folder,
        kept,
        {side: str(calls[side[:-2]].absolute()) for side in used},
        {},
        {side: (side[:-2], side[-1]) for side in used},
    )


def _call(utterance: Utterance) -> str:
    return utterance.recording[:-2]


def _fits(utterance: Utterance, header: audio.AudioInfo) -> bool:
    try:
        begin, end = sample_range(utterance, frames=header.frames, rate=header.rate, where="")
    except UserError:
        return False
    return end - begin >= SHORTEST * header.rate
