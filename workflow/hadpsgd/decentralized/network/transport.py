"""What an engine asks of the way that weights travel between learners."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from hadpsgd.decentralized.core.note import Note
from hadpsgd.decentralized.network.wire import Header


@dataclass(frozen=True)
class Arrival:
    """A partner's snapshot."""

    weights: Tensor
    """Valid until the next exchange."""
    note: Note


class UnsettledError(ConnectionError):
    """An exchange ended before it was settled with all partners."""

    def __init__(
        self, *, rank: int, round_: int, arrived: Mapping[int, Arrival], lost: Collection[int]
    ) -> None:
        """`arrived`: whose snapshots are here; `lost`: partners that died or fell silent."""
        super().__init__(
            f"rank {rank} lost ranks {sorted(lost)} in round {round_}: they failed, were "
            "silent for too long, or made fewer steps and ended"
        )
        self.arrived = arrived
        self.lost = lost


class Transport(Protocol):
    """Exchanges of snapshots, one round at a time, by one thread.

    An exchange is settled with a partner when each knows that the other has its snapshot whole; a
    partner that was lost is missing in the result, on its side as on ours.
    """

    bytes_sent: int
    bytes_received: int

    def outgoing(self) -> Tensor:
        """The buffer [elements] into which the next snapshot is written."""

    def exchange(
        self, round_: int, receives: Sequence[int], sends: Sequence[int], note: Note
    ) -> dict[int, Arrival]:
        """Send the snapshot in `outgoing` to some ranks, receive that of others; blocks.

        Raises:
            UnsettledError: partners were lost.
        """

    def agree(self, round_: int, others: Sequence[int], note: Note) -> list[Note]:
        """Tell some ranks that this one begins a round, and hear the same from them all; blocks.

        Raises:
            UnsettledError: some were lost.
        """

    def invited(self, round_: int) -> bool:
        """Whether somebody has begun that round or a later one already: its snapshot is here.

        Who waits in a later round waits for all rounds before it.
        """

    def wait(self, seconds: float) -> None:
        """Until a message comes, `wake` is called by another thread, or time is up."""

    def wake(self) -> None:
        """End `wait`; any thread may call it."""

    def close(self) -> None:
        """Let go of all connections."""


class TalkingTransport(Transport, Protocol):
    """A transport that carries short messages (`wire.TALK`) as well, at any time, in order."""

    meanwhile: Callable[[], None]
    """Called during an exchange when messages may have come: it must not begin another."""
    timeout: float
    """Seconds of silence after which a partner is given up."""

    def reach(self, j: int) -> object:
        """Make a connection to a rank below this one; those above make theirs.

        Raises:
            OSError: nobody listens there.
        """

    def tell(self, j: int, message: Header) -> None:
        """Send a message to a rank as soon as it can be reached."""

    def heard(self) -> list[Header]:
        """Messages that came since the last call."""

    @property
    def said(self) -> bool:
        """Whether all that was told has left this process."""

    def ended(self) -> set[int]:
        """Ranks that closed their connection, or died, and left nothing to be read."""

    def lives(self, j: int) -> bool:
        """Whether a rank accepts connections."""

    def drop(self, j: int) -> None:
        """Let go of the connection to a rank, and of what was still to be said to it."""


class ElasticTransport(TalkingTransport, Protocol):
    """A transport among learners that come and go: whoever takes part makes a *membership*."""

    interrupted: Callable[[], bool]
    """Asked now and then during a silent exchange; ends it."""

    def reset(self, epoch: int) -> None:
        """Go over to the membership of that number: nothing of the one before is left."""

    def exchange(
        self,
        round_: int,
        receives: Sequence[int],
        sends: Sequence[int],
        note: Note,
        *,
        payload: Tensor | None = None,
        into: Sequence[Tensor] | None = None,
    ) -> dict[int, Arrival]:
        """As of `Transport`; `payload` is sent, and `into` filled in the order of `receives`,
        where they are given.
        """
