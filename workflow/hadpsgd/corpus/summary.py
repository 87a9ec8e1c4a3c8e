"""A table of what the sets of a corpus hold."""

from __future__ import annotations

from collections.abc import Mapping

from hadpsgd.corpus.validate import Summary

_HEAD = ("set", "utterances", "speakers", "recordings", "minutes", "words", "vocabulary", "OOV")
_UNKNOWN = "-"


def _row(name: str, s: Summary) -> tuple[str, ...]:
    minutes = _UNKNOWN if s.seconds is None else f"{s.seconds / 60:.1f}"
    oov = _UNKNOWN if s.oov is None else f"{s.oov} ({100 * s.oov_share:.2f} %)"
    counts = (s.utterances, s.speakers, s.recordings, minutes, s.words, s.vocabulary)
    return (name, *map(str, counts), oov)


def table(summaries: Mapping[str, Summary]) -> str:
    """One row a set, columns aligned; none of what is known of no set."""
    rows = [_HEAD, *(_row(name, summary) for name, summary in summaries.items())]
    columns = [column for column in zip(*rows, strict=True) if {*column[1:]} != {_UNKNOWN}]
    padded = [
        [cell.rjust(width) if i else cell.ljust(width) for cell in column]
        for i, column in enumerate(columns)
        for width in [max(map(len, column))]
    ]
    return "".join("  ".join(row) + "\n" for row in zip(*padded, strict=True))
