"""Do features that come from elsewhere cover their utterances: frames against segments."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

from hadpsgd.corpus.datadir import DataDir
from hadpsgd.errors import UserError
from hadpsgd.features.spectrum import SHIFT_SECONDS
from hadpsgd.skipped import named

_SECONDS, _SHARE = 0.1, 0.1
"""By so much, or such a share of the utterance, features may be shorter or longer: windows at its
edges, times that are rounded."""


def check_coverage(
    counts: Mapping[str, int], data: DataDir, *, limit: float, where: object
) -> None:
    """Compare frames with the lengths that segments say; utterances without segments have none.

    Those of another length are kept: what reads them compares frames. They are named.

    Args:
        counts: frames of each utterance that is there.
        data: with the segments.
        limit: the share of utterances that may be of another length.
        where: whence the features are.

    Raises:
        UserError: a larger share.
    """
    wrong = dict(_of_other_lengths(counts, data))
    if not wrong:
        return
    first = next(iter(wrong))
    what = (
        f"{len(wrong)} of {len(counts)} utterances have features of another length than their"
        f" segments: {named(wrong)} ({first}: {wrong[first]})"
    )
    if len(wrong) > limit * len(counts):
        fix = "Features of another data set, or frame shift? Make them again; or raise"
        raise UserError(what, where=where, fix=f"{fix} features.max_skipped")
    print(f"{where}: {what}", file=sys.stderr)


def _of_other_lengths(counts: Mapping[str, int], data: DataDir) -> Iterator[tuple[str, str]]:
    for utterance in data:
        if utterance.end is None or utterance.id not in counts:
            continue
        seconds = utterance.end - utterance.start
        found = counts[utterance.id] * SHIFT_SECONDS
        if abs(found - seconds) > max(_SECONDS, _SHARE * seconds):
            yield utterance.id, f"{found:.2f} s of {seconds:.2f} s"
