"""Numbers on the command line: within their bounds, or one line that says the option and these.

As argparse's `type`, they are checked before anything is read, so that no stage fails, computes for
ever or takes all memory for a number that nobody can mean.
"""

from __future__ import annotations

import math
from argparse import ArgumentParser, _ArgumentGroup
from collections.abc import Callable

from hadpsgd.errors import UserError

LARGEST = 2**31 - 1
"""No option that counts something takes more, as no key of a config does."""
_SHOWN = 20
"""Characters of what was given that a message has."""


def whole(option: str, *, least: int = 1, most: int = LARGEST) -> Callable[[str], int]:
    """What reads a whole number from `least` to `most`."""

    def read(text: str) -> int:
        try:
            # no number within bounds is longer, and Python refuses to read thousands of digits
            value = int(text) if len(text) <= _SHOWN else math.inf
        except ValueError:
            value = math.inf
        if not isinstance(value, int) or not least <= value <= most:
            what = f"{option} is a whole number from {least} to {most}, not {text[:_SHOWN]}"
            raise UserError(what)
        return value

    return read


def real(
    option: str, *, least: float = 0.0, most: float = 1e9, above: bool = False
) -> Callable[[str], float]:
    """What reads a number from `least` to `most`; with `above`, not `least` itself. No NaN."""
    words = "above" if above else "from"

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most or (above and value == least):
            lower = f"{words} {least:g} {'and up ' if above else ''}to {most:g}"
            raise UserError(f"{option} is a number {lower}, not {text[:_SHOWN]}")
        return value

    return read


def add_whole(
    parser: ArgumentParser | _ArgumentGroup,
    option: str,
    *,
    help: str,
    default: int | None = None,
    least: int = 1,
    most: int = LARGEST,
) -> None:
    """Add an option that takes a whole number from `least` to `most`."""
    parser.add_argument(
        option, type=whole(option, least=least, most=most), default=default, help=help
    )


def add_real(
    parser: ArgumentParser | _ArgumentGroup,
    option: str,
    *,
    help: str,
    default: float | None = None,
    least: float = 0.0,
    most: float = 1e9,
    above: bool = False,
) -> None:
    """Add an option that takes a number from `least` to `most`; with `above`, not `least`."""
    parser.add_argument(
        option, type=real(option, least=least, most=most, above=above), default=default, help=help
    )
