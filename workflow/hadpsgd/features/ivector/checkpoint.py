"""What the training of an extractor goes on from after a kill: the iterations that are done.

A checkpoint belongs to what a training began with, to the bit: first extractor, sums over all
frames, settings. Statistics of utterances are taken again.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.errors import UserError
from hadpsgd.features.ivector.extractor import Extractor
from hadpsgd.files import DAMAGED_ARRAYS, atomic_file

EVERY_SECONDS = 60.0
"""No more often, so that short trainings write none."""


class Checkpoint:
    """Of one training.

    Args:
        file: where it lies until `remove`.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._written = time.monotonic()
        self._begun_with = ""

    def begin(
        self, first: Extractor, scatter: NDArray[np.float64], settings: str
    ) -> tuple[Extractor, list[float]]:
        """Where the iterations that are done led, and the auxiliary function of each.

        A checkpoint that does not belong here, or is damaged, is removed.
        """
        digest = hashlib.sha256(settings.encode())
        for array in (*_arrays(first).values(), scatter):
            digest.update(repr(array.shape).encode() + array.tobytes())
        self._begun_with = digest.hexdigest()
        try:
            with np.load(self._file) as stored:
                if str(stored["begun_with"]) != self._begun_with:
                    raise ValueError("the stage begins with other data or settings now")
                arrays = {name: stored[name] for name in _arrays(first)}
                history = stored["history"].tolist()
            offset = float(arrays.pop("offset"))
            return Extractor(**arrays, offset=offset), history
        except FileNotFoundError:
            return first, []
        except DAMAGED_ARRAYS as error:
            print(f"{self._file} is not used: {error}", file=sys.stderr)
        self.remove()
        return first, []

    def save(self, found: Extractor, history: Sequence[float]) -> None:
        """Write what the training has come to, if that was not done a moment ago.

        Training goes on if that fails, and tries again later.
        """
        if time.monotonic() - self._written < EVERY_SECONDS:
            return
        try:
            with atomic_file(self._file) as temporary, temporary.open("wb") as stream:
                np.savez(
                    stream,
                    begun_with=np.array(self._begun_with),
                    history=np.array(history),
                    **_arrays(found),  # type: ignore[arg-type]
                )
        except (UserError, OSError) as error:
            print(f"warning: no checkpoint could be written: {error}", file=sys.stderr)
        self._written = time.monotonic()

    def remove(self) -> None:
        """The stage is written."""
        with suppress(OSError):
            self._file.unlink(missing_ok=True)


def _arrays(model: Extractor) -> dict[str, NDArray[np.float64]]:
    """All that an extractor is."""
    return {
        "weights": model.weights,
        "projections": model.projections,
        "inverse_covariances": model.inverse_covariances,
        "offset": np.array(model.offset),
    }
