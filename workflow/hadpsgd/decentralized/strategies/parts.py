"""What a node's mixer is made of: the same for real processes and in the virtual clock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from hadpsgd.decentralized.core.coordination import Coordination
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.place import Place
from hadpsgd.decentralized.core.quiet import Quiet
from hadpsgd.decentralized.core.threads import Clock
from hadpsgd.decentralized.network.collectives import Group
from hadpsgd.decentralized.network.rounding import ROUNDINGS
from hadpsgd.decentralized.network.transport import TalkingTransport
from hadpsgd.decentralized.strategies.exchange import Exchange, NoExchange
from hadpsgd.decentralized.strategies.free_mixer import FreeMixer
from hadpsgd.decentralized.strategies.mixer import Mixer, NoMixer
from hadpsgd.decentralized.strategies.partner_exchange import PartnerExchange
from hadpsgd.decentralized.strategies.peer_exchange import PeerExchange
from hadpsgd.decentralized.strategies.random_partner import PartnerMixer
from hadpsgd.decentralized.strategies.step_mixer import StepMixer
from hadpsgd.decentralized.strategies.strategy import Strategy
from hadpsgd.decentralized.topology.mixing import MixingSchedule


class Parts(ABC):
    """Of one node; a strategy asks for those that it needs.

    Args:
        members: of a super-learner, for the communication thread.
        before_sending: called before others can see a snapshot.
    """

    def __init__(
        self,
        learner: Learner,
        strategy: Strategy,
        schedule: MixingSchedule,
        place: Place,
        clock: Clock,
        members: Group,
        *,
        before_sending: Callable[[], object] = lambda: None,
    ) -> None:
        self.learner = learner
        self.strategy = strategy
        self.schedule = schedule
        self.place = place
        self.clock = clock
        self.members = members
        self.before_sending = before_sending
        self.coordination = Coordination(schedule, place.node)
        self.rounding = ROUNDINGS[strategy.wire]

    @abstractmethod
    def transport(self) -> TalkingTransport:
        """To other nodes; made when first asked for."""

    @abstractmethod
    def average(self) -> Exchange:
        """The mean of all nodes' weights."""

    def peers(self, kind: type[PeerExchange] = PeerExchange) -> PeerExchange:
        """With the partners that the schedule names."""
        return kind(
            self.learner,
            self.schedule,
            self.transport(),
            self.coordination,
            self.place,
            self.members,
            self.rounding,
            before_sending=self.before_sending,
        )

    def no_mixer(self) -> Mixer:
        """Nobody to mix with."""
        return NoMixer(self.learner, self.strategy, NoExchange(), self.coordination, self.clock)

    def in_step(self, exchange: Exchange) -> Mixer:
        """Snapshots and mixes between gradients only."""
        return StepMixer(self.learner, self.strategy, exchange, self.coordination, self.clock)

    def free(self) -> Mixer:
        """Snapshots and mixes at any moment."""
        return self.freely(self.peers())

    def drawn(self) -> Mixer:
        """Exchanges with one partner at a time, which learners draw."""
        quiet, transport = Quiet(self.schedule, self.place.node), self.transport()
        exchange = PartnerExchange(
            self.learner,
            self.schedule,
            transport,
            quiet,
            self.place,
            self.members,
            self.rounding,
            before_sending=self.before_sending,
        )
        return PartnerMixer(self.learner, self.strategy, exchange, quiet, transport, self.clock)

    def freely(self, exchange: Exchange) -> Mixer:
        """`free`, by an exchange."""
        return FreeMixer(
            self.learner,
            self.strategy,
            exchange,
            self.coordination,
            self.clock,
            wait=self.transport().wait,
            wake=self.transport().wake,
        )
