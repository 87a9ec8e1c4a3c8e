"""lhotse's manifests of a corpus without sets, brought into a data directory that is split."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from hadpsgd.config.lhotse import Manifests
from hadpsgd.corpus.manifests import Read, all_or_no_genders, read
from hadpsgd.corpus.stm import lines_of
from hadpsgd.errors import UserError

WANTED = "Give recordings and supervisions, or cuts, as lhotse writes them"


def data_directory(files: Sequence[Path], folder: Path) -> Read:
    """Write `folder`, with what is said in the manifests; audio stays where it is.

    Args:
        files: recordings and supervisions in any order, or cuts; what each is, it says itself.
        folder: to be written.

    Raises:
        UserError: other files, or a fault in one of them.
    """
    kinds = {_kind(file): str(file) for file in files}
    try:
        manifests = Manifests(**kinds)
    except ValidationError:
        kinds_found = ", ".join(sorted(kinds))
        raise UserError(f"only {kinds_found}", where=files[0], fix=WANTED) from None
    if len(kinds) < len(files):
        raise UserError("two manifests of one kind", where=files[-1], fix="Combine them: lhotse")
    found = read(manifests, folder)
    if found.silent:
        print(
            f"warning: {len(found.silent)} of {found.total} supervisions have no text and are left"
            f" out: {', '.join(found.silent[:5])}",
            file=sys.stderr,
        )
    all_or_no_genders(found.data, manifests.files[-1])
    found.data.write(folder)
    return found


def _kind(file: Path) -> str:
    """What a manifest lists, by its first line."""
    first = next(iter(lines_of(file)), "")
    try:
        item = json.loads(first)
    except ValueError:
        item = None
    match item:
        case {"supervisions": _}:
            return "cuts"
        case {"sources": _}:
            return "recordings"
        case {"recording_id": _}:
            return "supervisions"
    raise UserError("no manifest of lhotse's", where=file, fix=WANTED)
