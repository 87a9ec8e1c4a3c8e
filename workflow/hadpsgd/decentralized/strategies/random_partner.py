"""AD-PSGD as published: a learner draws a partner, both move by half of their difference.

arXiv 1710.06952, section 4. There are no rounds. A learner that its pace allows to mix asks another
one, drawn at random, for an exchange; the other's communication thread answers at once. If it
agrees, both take a snapshot, send it, and add half of the difference, (x_j - x_i) / 2 of the same
two snapshots: their mean stays. A learner is in one exchange at a time, so each is the atomic
average of the paper. Who is busy refuses, and tells those it refused when it is ready again: one of
them after each exchange, all when it has nobody to ask itself. If all were told at once by one that
is behind, and asks somebody itself at that moment, they would wait for its next refusals: over a
slow link, for long. If none were told, learners that are all behind would part into groups.

Nobody waits in a cycle. An exchange waits for its two learners alone, and who is in one refuses at
once. Who waits for the answer to its own question refuses lower ones and lets higher ones wait
until it is there: so only higher ones wait for lower ones, and if learners ask in a cycle, two of
them come to an exchange. (The paper has two sets of learners, active and passive; here everybody
may ask everybody.)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from typing_extensions import override

from hadpsgd.decentralized.core.coordination import living
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.note import Note
from hadpsgd.decentralized.core.quiet import Quiet
from hadpsgd.decentralized.core.threads import Clock
from hadpsgd.decentralized.network.transport import TalkingTransport, UnsettledError
from hadpsgd.decentralized.network.wire import Header, Kind
from hadpsgd.decentralized.strategies.free_mixer import IDLE_SECONDS, FreeMixer
from hadpsgd.decentralized.strategies.mixer import DEBT
from hadpsgd.decentralized.strategies.partner_exchange import PartnerExchange
from hadpsgd.decentralized.strategies.strategy import Strategy

DYING_SECONDS = 3.0
"""So long a process that died may seem to accept connections."""


class PartnerMixer(FreeMixer):
    """A `FreeMixer` whose rounds are exchanges with one partner, drawn or answered.

    Args:
        learner, strategy, exchange, clock: as for `Mixer`.
        quiet: pauses without rounds.
        transport: carries the questions and the snapshots.
    """

    exchange: PartnerExchange
    coordination: Quiet

    def __init__(
        self,
        learner: Learner,
        strategy: Strategy,
        exchange: PartnerExchange,
        quiet: Quiet,
        transport: TalkingTransport,
        clock: Clock,
    ) -> None:
        super().__init__(
            learner, strategy, exchange, quiet, clock, wait=transport.wait, wake=transport.wake
        )
        self.transport = transport
        self.node = exchange.place.node
        self._asked: tuple[int, int] | None = None
        """(partner, number) of the question that no answer has come to."""
        self._asked_at = 0.0
        self._agreed: tuple[int, int] | None = None
        """(partner, number) of the exchange that is due or under way."""
        self._waiting: list[tuple[int, int]] = []
        """(asker, number) of questions that wait for the answer to this learner's own."""
        self._busy: set[int] = set()
        """Who refused and has not said that it is ready."""
        self._refused: dict[int, None] = {}
        """Whom this learner refused and has not told that it is ready, in this order."""

    @override
    def start(self) -> None:
        """Begin; what is drawn depends on the seed, the learner and where it resumes."""
        counter = [0, self.learner.version, self.node, 2]
        self._draws = np.random.Philox(key=self.coordination.schedule.seed, counter=counter)
        self.transport.meanwhile = self._listen
        super().start()

    @property
    @override
    def moment(self) -> int:
        """The same at all learners, though their numbers of mixes differ."""
        return self.coordination.moment

    @property
    @override
    def _number(self) -> int:
        return -1 if self._agreed is None else self._agreed[1]

    @override
    def _begun(self) -> None:
        """A gradient begins. What a slow partner cost is made up for: credit is kept a while."""
        limit = DEBT * self.strategy.pace
        self._credit = min(self._credit + self.strategy.pace, limit)

    @override
    def _invited(self) -> bool:
        return False  # a question is answered where it is heard

    @override
    def _communicate(self) -> None:
        for j in range(self.node):
            try:
                self.transport.reach(j)
            except OSError:
                self._part_with(j)
        while not self._closed:
            self._listen()
            self._look_for_deaths()
            if self._agreed is not None:
                self._exchange()
                self._tell_ready(1)
                continue
            self._tell_news()
            if not self._ask():
                self._tell_ready(len(self._refused))
                self._idle(IDLE_SECONDS)

    # --- finding a partner ---

    def _ask(self) -> bool:
        """Draw a partner and ask it; False if there is nobody to ask, or no reason to."""
        if self._asked is not None or not self._willing(invited=False):
            return False
        others = [
            j for j in living(self.coordination.schedule) if j != self.node and j not in self._busy
        ]
        if not others:
            return False
        partner = others[int(self._draws.random_raw()) % len(others)]
        # no number comes twice between two learners: an exchange makes a version at both, and the
        # last bit says who asked
        number = 2 * self.learner.version + (self.node > partner)
        self._asked, self._asked_at = (partner, number), self.clock.now()
        self._say(partner, Kind.ASK, number)
        return True

    def _willing(self, *, invited: bool) -> bool:
        """Whether this learner may begin an exchange: its own, or one that it is asked for."""
        with self.learner.changed:
            return (
                self._agreed is None
                and not self.coordination.wanted
                and self.strategy.may_start(replace(self.counters(), invited=invited))
            )

    def _listen(self) -> None:
        """Take in what was told, and answer; called during an exchange, too."""
        for message in self.transport.heard():
            self._take_in(message)

    def _take_in(self, message: Header) -> None:
        sender = message.sender
        match message.kind:
            case Kind.ASK:
                self._answer(sender, message.round)
            case Kind.AGREED:
                self._agreed = self._asked
                self._answered()
            case Kind.REFUSED:
                self._busy.add(sender)
                self._answered()
            case Kind.READY:
                self._busy.discard(sender)
            case Kind.QUIET:
                self.coordination.fallen_quiet(sender, message.note)
            case Kind.FINISHED:
                self.coordination.heard(message.note, 0)
        with self.learner.changed:
            self.learner.changed.notify_all()

    def _answer(self, asker: int, number: int) -> None:
        """Agree to exchange, refuse, or let a higher one wait."""
        if self._asked is not None and asker > self.node:
            self._waiting.append((asker, number))
        elif self._asked is None and self._willing(invited=True):
            self._agreed = asker, number
            self._say(asker, Kind.AGREED, number)
        else:
            self._refused[asker] = None
            self._say(asker, Kind.REFUSED, number)

    def _answered(self) -> None:
        """The answer to this learner's own question is there."""
        self._asked = None
        waiting, self._waiting = self._waiting, []
        for asker, number in waiting:
            self._answer(asker, number)

    def _exchange(self) -> None:
        """With the partner agreed on."""
        assert self._agreed is not None
        partner, number = self._agreed
        self.exchange.partner = partner
        with self.learner.changed:
            self._begin_round()
        try:
            self._round()
        except UnsettledError:
            self._part_with(partner)
            self.exchange.give_up(number)
        self.exchange.apply()
        self._agreed = None
        with self.learner.changed:
            self.learner.changed.notify_all()

    # --- what is told without being asked ---

    def _tell_news(self) -> None:
        """Between exchanges."""
        if self._asked is not None:
            return
        if (news := self.coordination.news()) is not None:
            self._say_to_all(Kind.FINISHED, news)
        if self.coordination.wanted and not self.coordination.is_quiet(self.node):
            self._fall_quiet()

    def _tell_ready(self, count: int) -> None:
        """To those it refused, who waited longest first."""
        if self._refused and self._asked is None and self._willing(invited=True):
            for j in list(self._refused)[:count]:
                self._say(j, Kind.READY)
                del self._refused[j]

    def _fall_quiet(self) -> None:
        note = self.coordination.quiet_note(self.learner.version)
        self._say_to_all(Kind.QUIET, note)
        while not (self.transport.said or self._closed):  # at the end connections are closed
            self._idle(IDLE_SECONDS)
            self._listen()
            self._look_for_deaths()
        with self.learner.changed:
            self.coordination.fallen_quiet(self.node, note)
            self.learner.changed.notify_all()

    def _say(self, j: int, kind: Kind, number: int = 0, note: Note | None = None) -> None:
        message = Header(kind=kind, sender=self.node, round=number, note=note or Note())
        self.transport.tell(j, message)

    def _say_to_all(self, kind: Kind, note: Note) -> None:
        for j in living(self.coordination.schedule):
            if j != self.node:
                self._say(j, kind, note=note)

    # --- learners that die ---

    def _look_for_deaths(self) -> None:
        """Part with the dead. Who has come to the end closes its connections as they do.

        Raises:
            ConnectionError: a partner neither dies nor answers.
        """
        waited = self.clock.now() - self._asked_at
        if self._asked is not None and waited > self.transport.timeout:
            raise ConnectionError(f"learner {self._asked[0]} has not answered for {waited:.0f} s")
        ended = self.transport.ended()
        for j in living(self.coordination.schedule):
            if j == self.node or self.coordination.is_quiet(j):
                continue
            try:
                self.transport.reach(j)  # one that died before it connected ends no connection
            except OSError:
                ended.add(j)
            if j in ended:
                self._part_with(j)

    def _part_with(self, j: int) -> None:
        """Go on without a learner that died.

        Raises:
            ConnectionError: it lives: who knows whether it counts the exchange under way.
        """
        deadline = self.clock.now() + DYING_SECONDS
        while self.transport.lives(j):
            if self.clock.now() > deadline:
                raise ConnectionError(f"learner {self.node} lost its connection to learner {j}")
            self.clock.sleep(DYING_SECONDS / 50)
        self.transport.drop(j)
        self.coordination.without(j)
        self._waiting = [(asker, number) for asker, number in self._waiting if asker != j]
        self._refused.pop(j, None)
        if self._asked is not None and self._asked[0] == j:
            self._answered()
        with self.learner.changed:
            self.learner.changed.notify_all()
