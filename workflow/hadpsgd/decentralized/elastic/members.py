"""Super-learners that may die and come, each as a whole (see `membership`).

All members of all super-learners take part in a change. The copies of a super-learner stay equal
though its members hear of the change at different moments:

- Each reports how many updates (and rests) it has decided on; all do the largest of these numbers,
  and go over to the new membership at this point. What was mixed in before has its place before it.
- A round that was broken off counts if all members held their partner's shard, and all counterparts
  theirs. A member that has all shards of the mix knows that no other member lacks this one's: those
  who were broken off while they gathered shards finish it among themselves.

Where that is wanted, a super-learner of which members die is reduced to its first one, which goes
on alone: it takes the gradients of all members' minibatches, with those that are left (`helpers`),
and exchanges all shards. So its updates are those that they would have made together, bit for bit,
and nothing else knows of it. What it
was exchanging when it lost them does not count: it lacks their shards. If a partner counts it all
the same, the first member ends, too. New members come to it as
`reunion` says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import torch
from torch import Tensor
from typing_extensions import override

from hadpsgd.decentralized.core.place import ranks_of
from hadpsgd.decentralized.elastic.decision import Decision
from hadpsgd.decentralized.elastic.exchange import ElasticExchange
from hadpsgd.decentralized.network.tcp import TcpTransport
from hadpsgd.decentralized.network.transport import Arrival, UnsettledError
from hadpsgd.decentralized.strategies.peer_exchange import PeerExchange

SHARDS = 1 << 61
"""Rounds from here on (below gifts) are not mixes: shards of a mix that was broken off."""


class TornError(RuntimeError):
    """A member that was left alone lacks a part of what its partners have mixed."""


class MemberExchange(ElasticExchange):
    """An `ElasticExchange` of one member of a super-learner, or of one that goes on alone.

    The members' shards of a mix go the way of the weights, not through a process group: an exchange
    can be broken off, and says what has arrived.
    """

    links: TcpTransport
    reunites = False
    """Whether new members are there, and the others are to be told; its weights stand still."""
    _whole: Tensor | None = None
    """What a member that exchanges all shards sends."""
    _mixing = False
    """Whether a snapshot was taken whose mix is not whole yet."""
    _came: Mapping[int, Arrival] | None = None
    """Whose snapshots are here, by node, once the exchange with other super-learners has ended."""
    _host: Tensor | None = None
    """On a GPU: room for the shards in the host's memory."""
    _gatherers: Collection[int] = ()
    """Members that lack shards of a mix that was broken off."""
    _broken = 0
    """The round of that mix."""
    _number = 0
    """Round under whose number shards are gathered."""

    @property
    @override
    def peer_bytes(self) -> int:
        """Without what members send each other, which their group counts."""
        return self.transport.bytes_sent - self.members.bytes_sent

    @property
    @override
    def colleagues(self) -> Sequence[int]:
        """Those that take part."""
        return [] if self.place.node in self.membership.reduced else self.place.others

    @override
    def ways(self, node: int) -> Mapping[int, slice]:
        """The counterpart; of a reduced super-learner its first member, which has all shards."""
        reduced, first = self.membership.reduced, node * self.place.size
        if node in reduced:
            return {first: slice(None)}
        if self.place.node not in reduced:
            return super().ways(node)
        shard = self.learner.weights.numel() // self.place.size
        parts = [slice(m * shard, (m + 1) * shard) for m in range(self.place.size)]
        return {first + member: part for member, part in enumerate(parts)}

    @override
    def _outgoing(self) -> Tensor:
        return super()._outgoing() if self._whole is None else self._whole

    @override
    def _swap(self, round_: int) -> dict[int, Arrival]:
        current, node = self.schedule.round(round_), self.place.node
        sources = current.receives(node)
        if not {node, *sources, *current.sends(node)} & set(self.membership.reduced):
            return super()._swap(round_)
        own = self._outgoing()
        rows = {j: torch.empty_like(own) for j in sources}
        receives = {r: rows[j][part] for j in sources for r, part in self.ways(j).items()}
        sends = {r: own[part] for j in current.sends(node) for r, part in self.ways(j).items()}

        def by_node(came: Mapping[int, Arrival]) -> dict[int, Arrival]:
            """Those whose parts are all there."""
            whole = [j for j in sources if came.keys() >= self.ways(j).keys()]
            return {j: Arrival(rows[j], came[min(self.ways(j))].note) for j in whole}

        try:
            came = self.links.exchange(
                round_,
                list(receives),
                list(sends),
                self.note,
                payload=sends,
                into=list(receives.values()),
            )
        except UnsettledError as error:
            self._came = by_node(error.arrived)
            raise
        return by_node(came)

    @override
    def run(self, round_: int) -> None:
        """As usual; UnsettledError where it is broken off."""
        self._mixing, self._came = True, None
        self._broken = self._number = round_
        self._gatherers = self.colleagues
        try:
            PeerExchange.run(self, round_)
        except UnsettledError as error:
            if self._came is None:
                size = self.place.size
                self._came = {rank // size: came for rank, came in error.arrived.items()}
            raise
        self._mixing = False

    @override
    def _take(self, came: Mapping[int, Arrival], round_: int) -> None:
        self._came = came
        super()._take(came, round_)

    @override
    def _gather(self) -> None:
        if self._whole is not None:
            return
        shards = self.delta
        if shards.is_cuda:
            if self._host is None:
                self._host = torch.empty_like(shards, device="cpu", pin_memory=True)
            self._host[self.part].copy_(shards[self.part])
            shards = self._host
        rows = shards.view(self.place.size, -1)
        others, first = sorted(self._gatherers), self.place.rank - self.place.member
        self.links.exchange(
            self._number,
            others,
            others,
            self.note,
            payload=rows[self.place.member],
            into=[rows[rank - first] for rank in others],
        )
        self.members.bytes_sent += rows[0].nbytes * len(others)
        if shards is not self.delta:
            self.delta.copy_(shards)

    @override
    def must_change(self) -> bool:
        """As usual; or this member is alone, or no more so, and the others do not know it yet."""
        news = self.alone and self.place.node not in self.membership.reduced
        return super().must_change() or news or self._whole_again

    @property
    def _whole_again(self) -> bool:
        """Whether the others, who know that this member is alone, are to hear that it is not."""
        return self.reunites and self.place.node in self.membership.reduced

    def look(self, round_: int) -> None:
        """Break off where a change was proposed, or a partner is gone; `round_` comes next.

        Who has come to the end of the run, and is about to say so, takes no part any more.

        Raises:
            UnsettledError: there is a change to take part in.
        """
        if self.coordination.stops(round_):
            return
        lost = self._lost_while_idle(round_)
        if lost or self.must_change():
            raise UnsettledError(rank=self.place.rank, round_=round_, arrived={}, lost=lost)

    def change(self, lost: Collection[int], *, round_: int, steps: int) -> Decision:
        """Take part in a change, with `steps` updates decided on; `round_` is not mixed in yet."""
        held = (self._came or {}) if self._mixing else {}
        report = self._report(round_, exchanging=self._mixing, holds=held, steps=steps)
        dead = self.colleagues if self.alone else ()
        return self.membership.change(report, lost, dead=dead, whole=self._whole_again)

    def settle(self, decision: Decision) -> bool:
        """Make the mix of a round that was broken off, from what counts of it, if anything does.

        Raises:
            UnsettledError: another member died.
            TornError: a partner counts it, and this member that was left alone cannot.
        """
        self.links.reset(decision.epoch)
        mixing, came = self._mixing, self._came or {}
        if mixing and self.place.node in decision.shrunk:
            partners = self.schedule.round(self._broken).receives(self.place.node)
            if any(decision.past(j, round_=self._broken) for j in partners):
                raise TornError(
                    f"{self.place}: others were lost within a round that its partners count"
                )
        self._mixing = False
        settled = decision.settled(self.place.rank) if mixing else []
        if not settled:
            return False
        self._number = SHARDS + decision.epoch
        reports = decision.reports  # new members have none
        self._gatherers = [r for r in self.colleagues if r in reports and reports[r].exchanging]
        interrupted, self.links.interrupted = self.links.interrupted, lambda: False
        try:
            # in the planned order, not that of arrival: all shards must be summed in one
            plan = self.schedule.round(self._broken).receives(self.place.node)
            self._take({j: came[j] for j in plan if j in settled}, self._broken)
        finally:
            self.links.interrupted = interrupted
        return True

    def be_alone(self) -> None:
        """From the beginning: before it joins."""
        self.alone = True
        self._take_all()

    def _take_all(self) -> None:
        """This member exchanges all shards."""
        self.part = slice(None)
        self._whole = torch.empty_like(self.learner.weights)

    @override
    def _newcomers(self, decision: Decision) -> list[int]:
        """One that comes alone gets them from the first member."""
        found = super()._newcomers(decision)
        return [n for n in found if self.place.member == 0 or n not in decision.reduced]

    @override
    def _giver(self, decision: Decision, source: int) -> int:
        """Of a super-learner that is whole again the first member: new ones have no weights yet."""
        if source in decision.restored:
            return source * self.place.size
        return super()._giver(decision, source)

    @override
    def _receivers(self, decision: Decision, newcomer: int) -> Collection[int]:
        if self.place.node in decision.restored:
            return ranks_of(newcomer, size=self.place.size, reduced=decision.reduced)
        return super()._receivers(decision, newcomer)

    def begin_anew(self, decision: Decision) -> Callable[[], None]:
        """Go over to the new membership; what is returned gives newcomers their weights."""
        gift = self._gift(decision)
        self.learner.skip_to(decision.round)
        self._follow(decision)
        if self.place.node in decision.shrunk:
            self._take_all()
        if self.place.node in decision.restored:
            self.part, self._whole = self.shard, None
            self.learner.settle()
            self.alone = self.reunites = False
        return lambda: self._give(decision, gift)

    def enter(self, epoch: int) -> None:
        """As a new member of a super-learner that is whole from this membership on."""
        decision = self.membership.enter(epoch)
        self.links.reset(epoch)
        self._follow(decision)
