"""One exchange of snapshots with some partners: how far it is."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from torch import Tensor

from hadpsgd.decentralized.network.transport import Arrival


class Round:
    """How far an exchange is."""

    def __init__(
        self,
        number: int,
        receives: Sequence[int],
        sends: Sequence[int],
        *,
        payload: Mapping[int, Tensor],
        buffers: Sequence[Tensor],
    ) -> None:
        self.number = number
        self.payload = payload
        self.nbytes = max((tensor.nbytes for tensor in payload.values()), default=0)
        self.begin = time.monotonic()
        self.receives, self.sends = set(receives), set(sends)
        self.partners = sorted(self.receives | self.sends)
        self.open = set(self.partners)
        """Partners with whom the exchange is not settled."""
        self.buffers = dict(zip(receives, buffers, strict=False))
        self.unsent = set(sends)
        self.arrived: dict[int, Arrival] = {}
        self.acknowledged: set[int] = set()

    def flushed(self, j: int, *, done: bool) -> None:
        """All that there was to say to partner `j` is said."""
        settled = j not in self.unsent and (
            (j in self.arrived or j not in self.receives)
            and (j in self.acknowledged or j not in self.sends)
        )
        if done and settled:
            self.open.discard(j)
