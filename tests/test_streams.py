"""On a GPU each thread has a stream of its own: events must put what they share in order.

There is no GPU here. Streams are stood in for by vector clocks: a stream that waits for an event
knows what the recording stream had been asked for until then, and nothing else.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict

import pytest
import torch

from hadpsgd.decentralized.buffers import flatten
from hadpsgd.decentralized.coordination import Coordination
from hadpsgd.decentralized.events import Mix
from hadpsgd.decentralized.exchange import Exchange
from hadpsgd.decentralized.learner import Learner
from hadpsgd.decentralized.mixer import StepMixer
from hadpsgd.decentralized.schedules import create as create_schedule
from hadpsgd.decentralized.sgd import Sgd
from hadpsgd.decentralized.strategies import Choice, create
from hadpsgd.decentralized.threads import RealClock

STEPS = 20


class Event:
    """Stands in for torch.cuda.Event; a stream is its thread's number."""

    def __init__(self) -> None:
        self.known: dict[int, Counter[int]] = defaultdict(Counter)
        self._recorded: Counter[int] = Counter()

    def wait(self, stream: int) -> None:
        """What was recorded last is known to the stream."""
        self.known[stream] |= self._recorded

    def record(self, stream: int) -> None:
        """What the stream knows by now."""
        self._recorded = self.known[stream].copy()


class Watched(Exchange):
    """Its buffer is used by every part of a round; each must come after the one before."""

    def __init__(self, learner: Learner, event: Event) -> None:
        super().__init__()
        self.learner = learner
        self.event = event
        self.last = (0, 0)
        self.threads: set[int] = set()
        self.races: list[str] = []
        self.buffer = torch.zeros_like(learner.weights)

    def _use(self, part: str) -> None:
        stream = threading.get_ident()
        known = self.event.known[stream]
        before, number = self.last
        if known[before] < number:
            self.races.append(part)
        known[stream] += 1
        self.last = (stream, known[stream])
        self.threads.add(stream)

    def snapshot(self) -> None:
        """Written."""
        self._use("snapshot")
        self.version = self.learner.snapshot(self.buffer)

    def run(self, round_: int) -> None:
        """Read and written."""
        self._use("run")
        self.mix = Mix(round_, self.version, ())

    def apply(self) -> None:
        """Read."""
        self._use("apply")
        self.learner.sit_out(self.mix)


def test_parts_of_a_round_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: threading.get_ident())
    learner = Learner(flatten(torch.nn.Linear(2, 2)), Sgd())
    event = Event()
    monkeypatch.setattr(learner, "_fence", event)
    exchange = Watched(learner, event)
    coordination = Coordination(create_schedule("ring", 2, 0), 0)
    mixer = StepMixer(learner, create(Choice("dpsgd")), exchange, coordination, RealClock())
    mixer.start()
    try:
        for _ in range(STEPS):
            mixer.before_update()
            learner.update(0.1)
            mixer.after_update()
    finally:
        mixer.close()
    assert learner.rounds == STEPS and len(exchange.threads) == 2
    assert not exchange.races
