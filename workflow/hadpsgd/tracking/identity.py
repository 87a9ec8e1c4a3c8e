"""The key of a training run, kept beside its checkpoints: resumed training keeps it.

The key names the run in every store and in the spool, before and without a server.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from hadpsgd.files import write_text

FILE = "tracking.json"


@dataclass(frozen=True)
class Identity:
    """Who a run is: `key` in the stores, `created` in seconds since 1970."""

    key: str
    created: float
    former: str = ""
    """Key of the run from whose checkpoints this one went on (`handover`), if any."""


def read(folder: Path) -> Identity | None:
    """The identity kept in a folder, or None."""
    try:
        return Identity(**json.loads((folder / FILE).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (json.JSONDecodeError, TypeError):
        return None


def read_or_create(folder: Path) -> Identity:
    """The identity kept in a folder; a new one is written where there is none."""
    found = read(folder)
    if found is None:
        found = new(created=round(time.time(), 3))
        write(folder, found)
    return found


def new(*, created: float, former: str = "") -> Identity:
    """The identity of a run that no store knows; as in `Identity`."""
    return Identity(uuid.uuid4().hex, created, former)


def write(folder: Path, who: Identity) -> None:
    """Keep an identity in a folder."""
    write_text(folder / FILE, json.dumps(asdict(who)) + "\n")
