"""Nothing is dropped in silence: it is counted and named, and too much of it stops a stage."""

from __future__ import annotations

import sys
from collections.abc import Collection
from itertools import islice

from hadpsgd.errors import UserError

_NAMED = 5


def named(names: Collection[str]) -> str:
    """The first ones."""
    return ", ".join(islice(names, _NAMED)) + (" ..." if len(names) > _NAMED else "")


def check_skipped(
    skipped: Collection[str], *, total: int, limit: float, what: str, where: object, fix: str
) -> None:
    """Say on standard error what is skipped, for instance `3 of 948 utterances have no ...: a, b`.

    Args:
        skipped: names of what is left out.
        total: out of how many.
        limit: the share that may be.
        what: what they are and lack, such as "utterances have no alignment".
        where: the file or folder.
        fix: what to do where there are too many.

    Raises:
        UserError: a larger share than `limit`.
    """
    if not skipped:
        return
    line = f"{len(skipped)} of {total} {what}: {named(skipped)}"
    if len(skipped) > limit * total:
        raise UserError(line, where=where, fix=fix)
    print(f"{where}: skipped: {line}", file=sys.stderr)
