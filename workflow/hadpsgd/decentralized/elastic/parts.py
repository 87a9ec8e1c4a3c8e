"""Mixers of nodes that may die and come: the same for real processes and in the virtual clock."""

from __future__ import annotations

from abc import abstractmethod

from typing_extensions import override

from hadpsgd.decentralized.elastic.exchange import ElasticExchange
from hadpsgd.decentralized.elastic.member_mixer import ElasticMemberMixer
from hadpsgd.decentralized.elastic.members import MemberExchange
from hadpsgd.decentralized.elastic.membership import Membership
from hadpsgd.decentralized.network.collectives import Group
from hadpsgd.decentralized.network.transport import ElasticTransport
from hadpsgd.decentralized.strategies.mixer import Mixer
from hadpsgd.decentralized.strategies.parts import Parts


class ElasticParts(Parts):
    """Those of a node whose partners may die and come back."""

    life = 1
    """Which start of this node's processes this is."""
    alone = False
    """Whether this is a first member whose others are to come later."""
    gradients: Group
    """Over which a super-learner's members average their gradients."""

    @override
    @abstractmethod
    def transport(self) -> ElasticTransport:
        """To other nodes; made when first asked for."""

    @abstractmethod
    def membership(self) -> Membership:
        """Who takes part, as this rank sees it."""

    @override
    def free(self) -> Mixer:
        """Of learners, or of members that keep equal copies."""
        transport, membership = self.transport(), self.membership()
        what = (self.learner, self.schedule, transport, self.coordination, self.place, membership)
        kind = ElasticExchange if self.place.size == 1 else MemberExchange
        exchange = kind(
            *what, life=self.life, rounding=self.rounding, before_sending=self.before_sending
        )
        if not isinstance(exchange, MemberExchange):
            return self.freely(exchange)
        if self.alone:
            exchange.be_alone()
        return ElasticMemberMixer(
            self.learner,
            self.strategy,
            exchange,
            self.coordination,
            self.clock,
            wait=transport.wait,
            wake=transport.wake,
            gradients=self.gradients,
        )
