"""An operation on long tensors that two threads may share, so that neither waits for the other.

Who begins it, under a lock, leaves the lock and does it piece by piece. Who needs its result before
that does the pieces that are left, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

PIECE = 2**19
"""Elements of a piece: under a millisecond, and nothing beside what it takes to hand it out."""


class Pieces:
    """See the module.

    Args:
        length: elements.
        do: does the operation on some of them; any order, each of them once.
    """

    def __init__(self, length: int, do: Callable[[slice], object]) -> None:
        self._length = length
        self._do = do
        self._taken = 0
        self._busy = 0
        self._changed = threading.Condition()

    def finish(self, most: int = PIECE) -> None:
        """Until all pieces are done, by this thread or by another; any thread, any time.

        `most`: elements of a piece, at most, that this thread does.
        """
        while (piece := self._take(most)) is not None:
            try:
                self._do(piece)
            finally:
                with self._changed:
                    self._busy -= 1
                    self._changed.notify_all()

    def _take(self, most: int) -> slice | None:
        """The next piece; None, once nobody works on one any more, if none is left."""
        with self._changed:
            if self._taken >= self._length:
                self._changed.wait_for(lambda: not self._busy)
                return None
            piece = slice(self._taken, min(self._taken + most, self._length))
            self._taken, self._busy = piece.stop, self._busy + 1
            return piece
