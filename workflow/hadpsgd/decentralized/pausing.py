"""Pauses and the end where learners do not know beforehand how many steps they make."""

from __future__ import annotations

from hadpsgd.decentralized.strategies.mixing_engine import DecentralizedEngine


def stand_still(engine: DecentralizedEngine) -> None:
    """Let all learners pause, for `state_dict`; all call it, as `finish`; then `go_on`."""
    if engine.over:
        return
    if engine.strategy.synchronous:
        engine.mixer.complete_round()
        return
    if not engine.paused:  # any learner may be the first: who leads may be waiting for others
        engine.request_pause()
    while not (engine.paused or engine.over):  # others may stop instead
        if engine.place.size > 1:  # members take turns to put the last mix among their updates
            engine.rest()
        else:
            engine.serve()


def finish(engine: DecentralizedEngine) -> None:
    """After a step that was not known to be the last: none follows. Serve until all are done.

    A round under way is mixed in. All learners call it, the same number of steps each where the
    strategy is synchronous.
    """
    engine.mixer.complete_round()
    engine.no_more_gradients()
    while not engine.over:
        engine.serve()
    engine.learner.settle()
