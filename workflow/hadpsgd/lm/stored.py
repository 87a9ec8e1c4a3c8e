"""A back-off model as files of its arrays, which are mapped and not read: processes share them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hadpsgd.errors import UserError, reason
from hadpsgd.files import DAMAGED_ARRAYS
from hadpsgd.lm.backoff import Backoff, Order

WORDS = "words"
_KEYS, _LOG_PROB, _BACKOFF = "keys.npy", "log_prob.npy", "backoff.npy"
_FIX = "Make the graph again"


def write(model: Backoff, folder: Path) -> None:
    """Write FOLDER/words, one a line, and of each order N FOLDER/N.{keys,log_prob,backoff}.npy."""
    folder.mkdir()
    (folder / WORDS).write_text("".join(f"{word}\n" for word in model.words), encoding="utf-8")
    for length, order in enumerate(model.orders, 1):
        np.save(folder / f"{length}.{_KEYS}", order.keys)
        np.save(folder / f"{length}.{_LOG_PROB}", order.log_prob)
        np.save(folder / f"{length}.{_BACKOFF}", order.backoff)


def read(folder: Path) -> Backoff:
    """What `write` wrote.

    Raises:
        UserError: a file is missing or damaged.
    """
    try:
        # not split at other characters that end lines: words may have them
        model = Backoff((folder / WORDS).read_text(encoding="utf-8").split("\n")[:-1])
        while (folder / f"{len(model.orders) + 1}.{_KEYS}").exists():
            length = len(model.orders) + 1
            parts = [
                np.load(folder / f"{length}.{name}", mmap_mode="r").view(np.ndarray)
                for name in (_KEYS, _LOG_PROB, _BACKOFF)
            ]
            if len({len(part) for part in parts}) > 1:
                raise ValueError(f"{length}-grams of different numbers")
            if [part.dtype.kind for part in parts] != ["i", "f", "f"]:
                raise ValueError(f"{length}-grams of other types")
            model.orders.append(Order(*parts))
    except FileNotFoundError as error:
        raise UserError("missing", where=error.filename, fix=_FIX) from None
    except DAMAGED_ARRAYS as error:
        raise UserError(
            f"a damaged language model ({reason(error)})", where=folder, fix=_FIX
        ) from None
    # a word that stands there twice has one id
    sizes = {len(model.words), len(model.ids)}
    if not model.orders or {len(model.orders[0].keys)} != sizes:
        raise UserError("a damaged language model", where=folder, fix=_FIX)
    return model
