"""A store that does not answer or refuses: one error, which says why in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hadpsgd.errors import UserError
from hadpsgd.tracking.uri import redacted


class NotStoredError(Exception):
    """The store could not be reached or refused a record; one line says why."""


@contextmanager
def explained(uri: str) -> Iterator[None]:
    """Turn every failure of MLflow's client into NotStoredError with one line."""
    try:
        yield
    except (NotStoredError, UserError):
        raise
    except Exception as error:  # MLflow, its database drivers and requests raise dozens of types
        raise NotStoredError(f"{redacted(uri)}: {one_line(error)}") from error


def one_line(error: Exception) -> str:
    """What an error of MLflow or of a library below it says."""
    if isinstance(error, ModuleNotFoundError):
        return f"{error}: install this database's driver"
    text = " ".join(str(error).split()) or type(error).__name__
    for marker in ("Max retries exceeded", "Failed to establish"):
        if marker in text:
            return "no server answers there"
    return text[:300]
