"""The one exception that a user is meant to read."""

from __future__ import annotations

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


def reason(error: BaseException) -> str:
    """What a library said of something damaged, as a part of one line: some errors have no text
    (EOFError, MemoryError), others many lines."""
    said = str(error).strip().splitlines()
    return said[0].rstrip(".") if said else _UNSAID.get(type(error), type(error).__name__)
