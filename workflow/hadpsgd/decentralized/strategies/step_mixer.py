"""Snapshots and mixes between gradients only: for synchronous strategies."""

from __future__ import annotations

from typing_extensions import override

from hadpsgd.decentralized.strategies.mixer import SERVE_SECONDS, Mixer


class StepMixer(Mixer):
    """Snapshots and mixes between gradients only."""

    def __init__(self, *args: object) -> None:
        """As for `Mixer`."""
        super().__init__(*args)  # type: ignore[arg-type]
        self._arrived = False

    def start(self) -> None:
        """Begin; the first round goes beside the first gradient."""
        super().start()
        self._start_round()

    @override
    def before_update(self) -> None:
        """Wait for the round that belongs to the update, and mix."""
        self._wait(lambda: self._arrived or self.strategy.may_update(self.counters()))
        if self._arrived:
            self._apply()

    def after_update(self) -> None:
        """Start the next round; wait for it if the next gradient needs it."""
        self._begun()
        self._start_round()
        while not (self.paused or self.strategy.may_begin(self.counters())):
            self._wait(lambda: self._arrived)
            self._apply()
            self._start_round()

    def serve(self) -> None:
        """Until the round under way, if any, has come back, or a while."""
        self._wait(lambda: self._arrived or self.started == self.learner.rounds, SERVE_SECONDS)

    @override
    def complete_round(self) -> None:
        """Instead of beside the next gradient."""
        while self.started > self.learner.rounds:
            self._wait(lambda: self._arrived)
            self._apply()
        self.learner.settle()

    def _invited(self) -> bool:
        return False  # rounds belong to steps

    def _apply(self) -> None:
        self.learner.order_streams()
        self.exchange.apply()
        with self.learner.changed:
            self._arrived = False

    def _start_round(self) -> None:
        with self.learner.changed:
            if self._may_start():
                self._begin_round()
                self.learner.changed.notify_all()

    def _communicate(self) -> None:
        changed = self.learner.changed
        while True:
            with changed:
                changed.wait_for(
                    lambda: (
                        self._closed or (self.started > self.learner.rounds and not self._arrived)
                    )
                )
            if self._closed:
                return
            self._round()
            with changed:
                self._arrived = True
                changed.notify_all()
