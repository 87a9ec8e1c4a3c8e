"""The exchange of two learners: both send a snapshot and move by half of the difference."""

from __future__ import annotations

from typing_extensions import override

from hadpsgd.decentralized.core.events import Mix
from hadpsgd.decentralized.strategies.peer_exchange import PeerExchange
from hadpsgd.decentralized.topology.mixing import Takes

HALF = 0.5


class PartnerExchange(PeerExchange):
    """An exchange with `partner` alone; its round is the number that both agreed on."""

    partner = -1

    @override
    def run(self, round_: int) -> None:
        """Exchange; make delta of what came.

        Raises:
            UnsettledError: the partner was lost.
        """
        self._ready()
        arrivals = self.transport.exchange(round_, [self.partner], [self.partner], self.note)
        self._take(arrivals, round_)

    @override
    def _shares(self, round_: int) -> Takes:
        return {self.partner: HALF}

    def give_up(self, round_: int) -> None:
        """The partner died: the exchange does not count."""
        self.mix = Mix(round=round_, own=self.note.version, takes=())
