"""What a stage leaves of a run whose training diverged: a note in place of its usual files.

A training that diverges is a result: another one of the same settings diverges, too. So its stages
end well, at once, each with the reason in its output, and the run is a row that says so.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from hadpsgd.files import atomic_folder, write_text

FILE = "diverged.json"


def leave(out: Path, *, why: str, what: str) -> int:
    """Make OUT a folder with nothing but the note; the exit status of the stage.

    Args:
        out: the stage's folder.
        why: what training said.
        what: that is not done, such as "decoded".
    """
    with atomic_folder(out) as folder:
        note(folder / FILE, why)
    return say(why=why, what=what)


def note(file: Path, why: str) -> None:
    """Write the reason as JSON."""
    write_text(file, json.dumps({"diverged": why}) + "\n")


def say(*, why: str, what: str) -> int:
    """One line on standard error; the exit status of the stage."""
    print(f"the run diverged ({why}): nothing is {what}", file=sys.stderr)
    return 0


def told(folder: Path) -> str:
    """The reason that a stage's folder holds; empty where the run did not diverge."""
    try:
        return str(json.loads((folder / FILE).read_text(encoding="utf-8"))["diverged"])
    except FileNotFoundError:
        return ""
