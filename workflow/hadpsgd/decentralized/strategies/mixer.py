"""The communication thread: rounds of mixing beside the gradients, as the strategy allows.

`FreeMixer` takes snapshots and mixes at any moment, for asynchronous strategies (`members` has the
one for super-learners). `StepMixer` does so only between gradients.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from typing_extensions import override

from hadpsgd.decentralized.core.coordination import Coordination
from hadpsgd.decentralized.core.engine import LostMemberError
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.threads import Clock
from hadpsgd.decentralized.strategies.exchange import Exchange
from hadpsgd.decentralized.strategies.strategy import Counters, Strategy

DEBT = 8
"""Gradients, at most, during which a learner starts no round because others made it mix ahead."""
SERVE_SECONDS = 0.2
"""Who only serves the others looks so often whether there is something else to do."""


class Mixer(ABC):
    """What the compute thread knows of mixing."""

    def __init__(
        self,
        learner: Learner,
        strategy: Strategy,
        exchange: Exchange,
        coordination: Coordination,
        clock: Clock,
    ) -> None:
        self.learner = learner
        self.strategy = strategy
        self.exchange = exchange
        self.coordination = coordination
        self.clock = clock
        self.started = 0
        """Rounds whose snapshot was taken."""
        self.finished = False
        """Whether the last gradient is applied."""
        self.seconds = 0.0
        """Spent in rounds, by the communication thread."""
        self._credit = 0
        self._error: BaseException | None = None
        self._closed = False

    def start(self) -> None:
        """Begin to mix."""
        self.started = self.learner.rounds
        self._credit = self.strategy.pace
        self.learner.order_streams()
        self.task = self.clock.spawn(self._guarded, name="mixing", daemon=True)

    def close(self) -> None:
        """End the thread; rounds under way are left to the transport's closing."""
        with self.learner.changed:
            self._closed = True
            self.learner.changed.notify_all()
        self.wake()

    @property
    def alone(self) -> bool:
        """Whether this member of a super-learner goes on without the others."""
        return False

    def go_alone(self, lost: LostMemberError) -> None:
        """Go on without the other members of the super-learner, which are lost.

        Raises:
            LostMemberError: `lost`; this one cannot.
        """
        raise lost

    def decide(self) -> None:  # noqa: B027
        """All gradients of the super-learner are there: the update comes next."""

    @abstractmethod
    def before_update(self) -> None:
        """Wait until the gradient may be applied."""

    @abstractmethod
    def after_update(self) -> None:
        """Wait until the next gradient may begin."""

    def settle(self) -> None:
        """Fold in what was mixed; between gradients."""
        self.learner.settle()

    def check(self) -> None:
        """Raise what went wrong in the communication thread."""
        if self._error is not None:
            raise self._error

    def request_pause(self, *, now: bool = False) -> None:
        """Ask all learners for a pause; `now`: all ask at this same moment."""
        self.coordination.request_pause(self.started, now=now)

    def passed(self) -> None:
        """The pause is over."""
        self.coordination.passed()

    def request_stop(self, *, now: bool = False) -> None:
        """Ask all learners to end; `now`: all ask at this same moment."""
        self.coordination.request_stop(self.started, now=now)

    def finish(self) -> None:
        """The last gradient is applied."""
        self.finished = True
        if self.strategy.synchronous:
            # the last gradient may have made an average due
            due = self.strategy.mixes and self.strategy.may_start(self.counters())
            self.coordination.request_stop(self.started + due, now=True)
        else:
            self.coordination.finish(self.started)

    @property
    def paused(self) -> bool:
        """Whether all rounds before a pause are mixed in (between gradients only)."""
        rounds = self.learner.rounds
        return rounds == self.started and self.coordination.pauses(rounds)

    def complete_round(self) -> None:  # noqa: B027
        """Between gradients: mix a round in that is under way, where rounds belong to steps."""

    def wake(self) -> None:  # noqa: B027
        """The counters have changed."""

    def serve(self) -> None:  # noqa: B027
        """Without gradients: wait for the next thing to do."""

    def counters(self) -> Counters:
        """How far this learner is."""
        learner = self.learner
        round_ = learner.rounds
        return Counters(
            steps=learner.steps,
            started=self.started,
            rounds=round_,
            missed=learner.version - learner.read,
            credit=self._credit,
            invited=self._invited(),
            finished=self.finished,
        )

    @abstractmethod
    def _invited(self) -> bool:
        """Whether a partner waits for the next round."""

    @abstractmethod
    def _communicate(self) -> None:
        """Rounds until closed."""

    @property
    def moment(self) -> int:
        """While paused: a number that grows from pause to pause, the same at all learners."""
        return self.learner.rounds

    @property
    def _number(self) -> int:
        """Of the round under way."""
        return self.learner.rounds

    def _round(self) -> None:
        """One round's exchange, timed."""
        begin = self.clock.now()
        self.learner.order_streams()  # the snapshot may be the other thread's
        self.exchange.run(self._number)
        self.learner.order_streams()  # the mix may become the other thread's
        self.seconds += self.clock.now() - begin

    def _begun(self) -> None:
        """A gradient begins."""
        self._credit = min(self._credit, 0) + self.strategy.pace

    def _begin_round(self) -> None:
        """Take the snapshot of the next round."""
        self.exchange.snapshot()
        self.started += 1
        self._credit = max(self._credit - 1, -DEBT * self.strategy.pace)

    def _may_start(self) -> bool:
        return (
            self.started == self.learner.rounds
            and not self.coordination.pauses(self.started)
            and self.strategy.may_start(self.counters())
        )

    def _guarded(self) -> None:
        try:
            if self.learner.weights.is_cuda:  # a new thread's current device is the first one
                with torch.cuda.stream(torch.cuda.Stream(self.learner.weights.device)):
                    self._communicate()
            else:
                self._communicate()
        except BaseException as error:
            if not self._closed:
                self._error = error
            with self.learner.changed:
                self.learner.changed.notify_all()

    def _wait(self, until: Callable[[], bool], seconds: float | None = None) -> None:
        """Compute thread: wait for the communication thread, and fail with it."""
        with self.learner.changed:
            self.learner.changed.wait_for(lambda: until() or self._error is not None, seconds)
        self.check()


class NoMixer(Mixer):
    """Nobody to mix with."""

    def start(self) -> None:
        """Nothing to start."""

    @override
    def before_update(self) -> None:
        """Never waits."""

    def after_update(self) -> None:
        """Never waits."""

    def _invited(self) -> bool:
        return False

    def _communicate(self) -> None:
        raise NotImplementedError
