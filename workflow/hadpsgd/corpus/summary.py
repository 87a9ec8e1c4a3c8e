"""A table of what the sets of a corpus hold."""

from __future__ import annotations

from collections.abc import Mapping

from hadpsgd.corpus.validate import Summary

_HEAD = ("set", "utterances", "speakers", "recordings", "minutes", "words", "vocabulary", "OOV")


def _row(name: str, s: Summary) -> tuple[str, ...]:
    counts = (s.utterances, s.speakers, s.recordings, f"{s.seconds / 60:.1f}", s.words)
    oov = f"{s.oov} ({100 * s.oov_share:.2f} %)"
    return (name, *map(str, counts), str(s.vocabulary), oov)


def table(summaries: Mapping[str, Summary]) -> str:
    """One row a set, columns aligned."""
    rows = [_HEAD, *(_row(name, summary) for name, summary in summaries.items())]
    columns = zip(*rows, strict=True)
    padded = [
        [cell.rjust(width) if i else cell.ljust(width) for cell in column]
        for i, column in enumerate(columns)
        for width in [max(map(len, column))]
    ]
    return "".join("  ".join(row) + "\n" for row in zip(*padded, strict=True))
