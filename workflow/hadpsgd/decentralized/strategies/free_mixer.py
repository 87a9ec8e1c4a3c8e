"""Snapshots and mixes at any moment, beside the gradients: for asynchronous strategies."""

from __future__ import annotations

from collections.abc import Callable

from typing_extensions import override

from hadpsgd.decentralized.strategies.mixer import SERVE_SECONDS, Mixer

IDLE_SECONDS = 0.25


class FreeMixer(Mixer):
    """Snapshots and mixes at any moment."""

    def __init__(
        self, *args: object, wait: Callable[[float], None], wake: Callable[[], None]
    ) -> None:
        """`wait` and `wake` are the transport's; the rest as for `Mixer`."""
        super().__init__(*args)  # type: ignore[arg-type]
        self._idle = wait
        self._wake = wake

    def wake(self) -> None:
        """Let the communication thread look at the counters again."""
        self._wake()

    @override
    def before_update(self) -> None:
        """As the strategy says."""
        self._wait(lambda: self.strategy.may_update(self.counters()))

    def after_update(self) -> None:
        """At a pause, wait until it is reached; then as the strategy says."""
        self._wait(lambda: self.strategy.may_begin(self.counters()))
        with self.learner.changed:
            self._begun()
        self.wake()

    def serve(self) -> None:
        """A while, or until all pause; the communication thread goes on by itself."""
        self.wake()
        self._wait(lambda: self.paused, SERVE_SECONDS)

    def _invited(self) -> bool:
        rounds = self.learner.rounds
        return self.coordination.urgent(self.started) or (
            self.started == rounds and self.exchange.invited(rounds)
        )

    def _communicate(self) -> None:
        while not self._closed:
            self.exchange.between_rounds()
            if self._start_round():
                self._round()
                self.exchange.apply()
            else:
                self._idle(IDLE_SECONDS)
            with self.learner.changed:  # a change of members may have skipped rounds
                self.started = self.learner.rounds

    def _start_round(self) -> bool:
        with self.learner.changed:
            if not self._may_start():
                return False
            self._begin_round()
            return True
