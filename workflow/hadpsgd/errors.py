"""The one exception that a user is meant to read."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_UNSAID: dict[type[BaseException], str] = {
    EOFError: "cut short",
    MemoryError: "more than memory holds",
}


class UserError(Exception):
    """What is wrong (file, line or utterance) and what to do, in one line.

    The command line prints it without a traceback and exits with status 2. Raise it for bad
    input, never for a fault of our own.
    """

    def __init__(self, what: str, *, where: object = None, fix: str = "") -> None:
        """`where` is the file, line or utterance; `fix` says what to do."""
        line = f"{where}: {what}" if where is not None else what
        super().__init__(f"{line}. {fix}" if fix else line)


def raise_all(faults: Sequence[UserError], where: object) -> None:
    """Raise a fault that is alone; of several print each, and raise one that tells the first.

    `where` is what all are of, told where the first one does not. Nothing happens without any.
    """
    if len(faults) > 1:
        for fault in faults:
            print(fault, file=sys.stderr)
        first = str(faults[0])
        what = f"{len(faults)} faults, the first: {first}"
        raise UserError(what, where=None if str(where) in first else where)
    if faults:
        raise faults[0]


def reason(error: BaseException) -> str:
    """What a library said of something damaged, as a part of one line: some errors have no text
    (EOFError, MemoryError), others many lines."""
    said = str(error).strip().splitlines()
    return said[0].rstrip(".") if said else _UNSAID.get(type(error), type(error).__name__)
