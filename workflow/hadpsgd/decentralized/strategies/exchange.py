"""One round of mixing at one node: from its snapshot to what is to be added to its weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence

from typing_extensions import override

from hadpsgd.decentralized.core.observation import Observer
from hadpsgd.decentralized.network.collectives import Group


class Exchange(ABC):
    """A round, in three parts: `snapshot`, `run` (blocks, beside the gradient), `apply`."""

    groups: Sequence[Group] = ()
    """Process groups that it uses."""

    def __init__(self) -> None:
        self.observer = Observer()

    @property
    def peer_bytes(self) -> int:
        """Bytes of weights sent to partners so far."""
        return 0

    @property
    def living(self) -> tuple[int, Mapping[int, int]] | None:
        """As of the engine; None where no newcomers come."""
        return None

    @property
    def reduced(self) -> Collection[int]:
        """Super-learners of which the first member goes on alone."""
        return ()

    @abstractmethod
    def snapshot(self) -> None:
        """Begin to take the learner's weights of the moment; what is long is left to `run`."""

    @abstractmethod
    def run(self, round_: int) -> None:
        """Exchange them."""

    @abstractmethod
    def apply(self) -> None:
        """Mix what came into the learner's weights."""

    def forget(self) -> bool:
        """At a pause: forget what was not sent for good; whether that is to be recorded."""
        return False

    def between_rounds(self) -> None:  # noqa: B027
        """Called now and then while no round is under way."""

    def invited(self, round_: int) -> bool:  # noqa: ARG002
        """Whether a partner waits for that round."""
        return False


class NoExchange(Exchange):
    """For strategies that do not mix."""

    @override
    def snapshot(self) -> None:
        """Never called."""
        raise NotImplementedError

    @override
    def run(self, round_: int) -> None:
        """Never called."""
        raise NotImplementedError

    @override
    def apply(self) -> None:
        """Never called."""
        raise NotImplementedError
