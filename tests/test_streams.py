"""On a GPU each thread has a stream of its own: events must put what they share in order.

There is no GPU here. Streams are stood in for by vector clocks: a stream that waits for an event
knows what the recording stream had been asked for until then, and nothing else. Every operation on
tensors is looked at: what it reads must have been written, and what it writes must have been read
and written, by operations that its stream knows of.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hadpsgd.decentralized.core.buffers import flatten
from hadpsgd.decentralized.core.coordination import NEVER, Coordination
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.note import Note
from hadpsgd.decentralized.core.place import Place
from hadpsgd.decentralized.core.sgd import Sgd
from hadpsgd.decentralized.core.threads import RealClock
from hadpsgd.decentralized.network.collectives import Group
from hadpsgd.decentralized.network.transport import Arrival
from hadpsgd.decentralized.strategies.average_exchange import AverageExchange
from hadpsgd.decentralized.strategies.free_mixer import FreeMixer
from hadpsgd.decentralized.strategies.members import MemberMixer
from hadpsgd.decentralized.strategies.mixer import Mixer
from hadpsgd.decentralized.strategies.peer_exchange import PeerExchange
from hadpsgd.decentralized.strategies.registry import Choice, create
from hadpsgd.decentralized.strategies.step_mixer import StepMixer
from hadpsgd.decentralized.topology.schedules import create as create_schedule

STEPS, ROUNDS = 60, 20
HOST_WAITS = "_local_scalar_dense"
"""The operation behind float(tensor) and tolist(): the thread waits for its stream."""


class Streams:
    """What every stream was asked for, and knows of the others; a stream is its thread's number."""

    def __init__(self) -> None:
        self.known: dict[int, Counter[int]] = defaultdict(Counter)
        self.done: Counter[int] = Counter()
        """How far threads have waited for their streams: over before anything asked for later."""
        self.written: dict[int, tuple[int, int]] = {}
        """Storage -> stream and number of the last operation that wrote it."""
        self.read: dict[int, Counter[int]] = defaultdict(Counter)
        """Storage -> the last operations that read it since, stream by stream."""
        self.names: dict[tuple[int, int], str] = {}
        self.races: list[str] = []
        self.recorded: Counter[int] = Counter()
        self._lock = threading.Lock()

    def wait(self, stream: int) -> None:
        """As torch.cuda.Event: what was recorded last is known to the stream."""
        with self._lock:
            self.known[stream] |= self.recorded

    def record(self, stream: int) -> None:
        """As torch.cuda.Event: what the stream knows by now."""
        with self._lock:
            self.recorded = self.known[stream].copy()

    def asked(self, name: str, reads: Sequence[Tensor], writes: Sequence[Tensor]) -> None:
        """The current thread's stream is asked for an operation."""
        stream = threading.get_ident()
        with self._lock:
            known = self.known[stream]
            known[stream] += 1
            self.names[stream, known[stream]] = name
            for tensor in (*reads, *writes):
                self._follows(name, *self.written.get(key(tensor), (stream, 0)))
            for tensor in writes:
                for reader, number in self.read.pop(key(tensor), Counter()).items():
                    self._follows(name, reader, number)
                self.written[key(tensor)] = stream, known[stream]
            for tensor in reads:
                self.read[key(tensor)][stream] = known[stream]
            if name == HOST_WAITS:
                self.done |= known

    def _follows(self, name: str, stream: int, number: int) -> None:
        known = self.known[threading.get_ident()]
        if max(known[stream], self.done[stream]) < number:
            self.races.append(f"{name} after {self.names[stream, number]}")


def key(tensor: Tensor) -> int:
    """Names a tensor's storage."""
    return tensor.untyped_storage().data_ptr()


class Watch(TorchDispatchMode):
    """Tells of every operation of the thread in which it is entered."""

    def __init__(self, streams: Streams) -> None:
        super().__init__()
        self.streams = streams

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        reads: list[Tensor] = []
        writes: list[Tensor] = []
        for place, argument in enumerate(func._schema.arguments):
            value = args[place] if place < len(args) else kwargs.get(argument.name)
            written = argument.alias_info is not None and argument.alias_info.is_write
            into = writes if written else reads
            into += [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
        if not func.is_view:
            self.streams.asked(func._schema.name.split("::")[1], reads, writes)
        return func(*args, **kwargs)


class Echo:
    """A transport whose partner always answers at once, with weights of its own."""

    bytes_sent = bytes_received = 0

    def __init__(self, like: Tensor) -> None:
        self._snapshot = torch.empty_like(like)
        self._answer = torch.ones_like(like)
        self._woken = threading.Event()

    def outgoing(self) -> Tensor:
        """The buffer of the next snapshot."""
        return self._snapshot

    def exchange(
        self,
        round_: int,
        receives: Sequence[int],
        sends: Sequence[int],  # noqa: ARG002
        note: Note,
    ) -> dict[int, Arrival]:
        """The partner is in the same round."""
        time.sleep(random.Random(round_).uniform(0, 0.002))
        answer = Note(version=note.version, steps=note.steps, pause=NEVER, stop=NEVER, finished=0)
        return {rank: Arrival(self._answer, answer) for rank in receives}

    def agree(self, round_: int, others: Sequence[int], note: Note) -> list[Note]:  # noqa: ARG002
        """The other member is as far as this one."""
        return [note]

    def invited(self, round_: int) -> bool:
        """Now and then: a mix is placed by the thread that mixes, or else by the next update."""
        return round_ % 3 == 0

    def wait(self, seconds: float) -> None:
        """Until woken."""
        self._woken.wait(seconds)
        self._woken.clear()

    def wake(self) -> None:
        """End `wait`."""
        self._woken.set()

    def close(self) -> None:
        """Nothing to let go of."""


class Doubled:
    """An allreduce that takes its time in the thread that runs it."""

    def __init__(self, buffer: Tensor) -> None:
        self.buffer = buffer

    def run(self) -> None:
        """Reads and writes the buffer."""
        self.buffer.mul_(1.0)


Make = Callable[[Learner], Mixer]


def step_mixer(learner: Learner) -> Mixer:
    """D-PSGD."""
    exchange, coordination = peers(learner)
    return StepMixer(learner, create(Choice(strategy="dpsgd")), exchange, coordination, RealClock())


def averaging(learner: Learner, strategy: str) -> Mixer:
    """D1D and post-local SGD."""
    coordination = Coordination(create_schedule("complete", learners=2, seed=0), 0)
    exchange = AverageExchange(learner, coordination, Place(rank=0, world=2, size=1), Doubled)
    choice = create(Choice(strategy=strategy, every=2))
    return StepMixer(learner, choice, exchange, coordination, RealClock())


def free_mixer(learner: Learner, **members: Group) -> Mixer:
    """AD-PSGD; with `gradients`, of super-learners."""
    exchange, coordination = peers(learner)
    strategy, clock, echo = create(Choice(strategy="adpsgd")), RealClock(), exchange.transport
    kind: Any = MemberMixer if members else FreeMixer
    threads = {"wait": echo.wait, "wake": echo.wake}
    mixer: Mixer = kind(learner, strategy, exchange, coordination, clock, **threads, **members)
    return mixer


def peers(learner: Learner) -> tuple[PeerExchange, Coordination]:
    """Exchanges with one partner."""
    schedule = create_schedule("ring", learners=2, seed=0)
    coordination = Coordination(schedule, 0)
    echo = Echo(learner.weights)
    exchange = PeerExchange(
        learner, schedule, echo, coordination, Place(rank=0, world=2, size=1), Group(None)
    )
    # the estimate of the distance may see weights in the middle of an update
    told = exchange.observer.mixed
    monitored = lambda mix, delta, weights: told(mix, delta, delta)  # noqa: E731, ARG005
    exchange.observer.mixed = monitored  # type: ignore[method-assign]
    return exchange, coordination


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch, mixer: Mixer, streams: Streams) -> Iterator[None]:
    """Both threads' operations are seen, and the learner's fence is the streams'."""
    communicate = mixer._communicate

    def seen() -> None:
        with Watch(streams):
            communicate()

    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: threading.get_ident())
    monkeypatch.setattr(mixer.learner, "_fence", streams)
    monkeypatch.setattr(mixer, "_communicate", seen)
    with Watch(streams):
        yield


KINDS: dict[str, tuple[Make, bool]] = {
    "dpsgd": (step_mixer, False),
    "d1d": (partial(averaging, strategy="d1d"), True),
    "local": (partial(averaging, strategy="local"), False),
    "adpsgd": (free_mixer, False),
    "hadpsgd": (partial(free_mixer, gradients=Group(None)), False),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_operation_comes_after_those_that_it_builds_on(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, late = KINDS[kind]
    streams = Streams()
    learner = Learner(flatten(torch.nn.Linear(2, 2)), Sgd(momentum=0.9), late=late)
    mixer = make(learner)
    with watched(monkeypatch, mixer, streams):
        mixer.start()
        try:
            while learner.steps < STEPS or learner.rounds < ROUNDS:
                time.sleep(random.Random(learner.steps).uniform(0, 0.002))
                learner.gradient.add_(learner.model)
                mixer.decide()
                mixer.before_update()
                learner.update(rate=0.1)
                mixer.after_update()
                mixer.exchange.observer.collect()  # asks for the next mix's distance, too
        finally:
            mixer.close()
            mixer.task.join(20)
    assert len(streams.known) == 2
    assert not streams.races
