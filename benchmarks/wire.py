"""What mixing a model of 165 MiB takes: the learner's lock, the wire, the processor.

    python benchmarks/wire.py lock

`wire_throughput.py` has the exchange itself.

`lock`: how long the communication thread holds the lock that updates need, over the time of a step.
A partner answers each snapshot at once, in this process. Seconds of that thread's processor time
say more than those of the wall where other work runs beside.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace, TracebackType

import torch
from torch import Tensor

from hadpsgd.decentralized.core.buffers import flatten
from hadpsgd.decentralized.core.coordination import NEVER, Coordination
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.note import Note
from hadpsgd.decentralized.core.place import Place
from hadpsgd.decentralized.core.sgd import Sgd
from hadpsgd.decentralized.core.threads import RealClock
from hadpsgd.decentralized.network.collectives import Group
from hadpsgd.decentralized.network.transport import Arrival
from hadpsgd.decentralized.strategies.free_mixer import FreeMixer
from hadpsgd.decentralized.strategies.peer_exchange import PeerExchange
from hadpsgd.decentralized.strategies.registry import Choice, create
from hadpsgd.decentralized.topology.schedules import create as create_schedule
from hadpsgd.models.blstm import BLSTM

SHAPE = SimpleNamespace(layers=6, cells=512, projection=256, dropout=0.0, frames_per_step=1)
DIM, PDFS, FRAMES = 260, 32_000, 21
"""The papers' model: 43,154,944 parameters, 164.6 MiB."""


class TimedCondition:
    """A condition that knows how long the thread `mixing` has held it."""

    def __init__(self) -> None:
        self.wall = self.processor = 0.0
        self.times = 0
        self._inner = threading.Condition()
        self._depth = 0
        self._begin = 0.0, 0.0

    def __enter__(self) -> None:
        """Acquire; the outermost time counts."""
        self._inner.__enter__()
        self._depth += 1
        if self._depth == 1:
            self._begin = time.perf_counter(), time.thread_time()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        if self._depth == 1:
            self._count()
        self._depth -= 1
        self._inner.__exit__(kind, error, trace)

    def wait(self, timeout: float | None = None) -> bool:
        """As that of threading.Condition; the lock is free meanwhile."""
        self._count()
        depth, self._depth = self._depth, 0
        found = self._inner.wait(timeout)
        self._depth, self._begin = depth, (time.perf_counter(), time.thread_time())
        return found

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """As that of threading.Condition."""
        end = None if timeout is None else time.monotonic() + timeout
        while not predicate():
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return False
            self.wait(left)
        return True

    def notify_all(self) -> None:
        """As that of threading.Condition."""
        self._inner.notify_all()

    def _count(self) -> None:
        if threading.current_thread().name == "mixing":
            self.wall += time.perf_counter() - self._begin[0]
            self.processor += time.thread_time() - self._begin[1]
            self.times += 1


class Echo:
    """A transport whose partners always answer at once, with weights of their own."""

    bytes_sent = bytes_received = 0

    def __init__(self, like: Tensor) -> None:
        self._snapshot, self._answer = torch.empty_like(like), like.clone()
        self._woken = threading.Event()

    def outgoing(self) -> Tensor:
        """The buffer of the next snapshot."""
        return self._snapshot

    def exchange(
        self,
        round_: int,  # noqa: ARG002
        receives: Sequence[int],
        sends: Sequence[int],  # noqa: ARG002
        note: Note,
    ) -> dict[int, Arrival]:
        """The partners are in the same round."""
        answer = Note(version=note.version, steps=note.steps, pause=NEVER, stop=NEVER, finished=0)
        return {rank: Arrival(self._answer, answer) for rank in receives}

    def agree(self, round_: int, others: Sequence[int], note: Note) -> list[Note]:  # noqa: ARG002
        """Nobody to agree with."""
        return []

    def invited(self, round_: int) -> bool:  # noqa: ARG002
        """Nobody begins first."""
        return False

    def wait(self, seconds: float) -> None:
        """Until woken."""
        self._woken.wait(seconds)
        self._woken.clear()

    def wake(self) -> None:
        """End `wait`."""
        self._woken.set()

    def close(self) -> None:
        """Nothing to let go of."""


def lock(steps: int, batch: int, pace: int) -> None:
    """AD-PSGD of one learner on a ring; prints what the lock and the steps took."""
    torch.set_num_threads(1)
    model = BLSTM(SHAPE, input_dim=DIM, num_pdfs=PDFS, seed=1)
    condition = TimedCondition()
    learner = Learner(flatten(model), Sgd(momentum=0.9), changed=condition)
    schedule = create_schedule("ring", learners=4, seed=0)
    coordination, echo = Coordination(schedule, 0), Echo(learner.weights)
    place = Place(rank=0, world=4, size=1)
    exchange = PeerExchange(learner, schedule, echo, coordination, place, Group(None))
    strategy = create(Choice(strategy="adpsgd", pace=pace))
    mixer = FreeMixer(
        learner, strategy, exchange, coordination, RealClock(), wait=echo.wait, wake=echo.wake
    )
    draws = torch.Generator().manual_seed(1)
    x = torch.randn(batch, FRAMES, DIM, generator=draws)
    y = torch.randint(PDFS, (batch, FRAMES), generator=draws)
    mixer.start()
    took: list[tuple[float, float]] = []
    for _ in range(steps):
        begin = time.perf_counter(), time.thread_time()
        model.loss(x, y).backward()
        learner.collect()
        mixer.before_update()
        learner.update(rate=0.01)
        mixer.after_update()
        took.append((time.perf_counter() - begin[0], time.thread_time() - begin[1]))
    mixer.close()
    mixer.task.join()
    wall, processor = (sum(column) / steps for column in zip(*took, strict=True))
    print(f"{learner.weights.nbytes / 2**20:.1f} MiB, {steps} steps, {learner.rounds} mixes")
    print(f"a step: {wall:.3f} s, {processor:.3f} s of the processor")
    for name, seconds, step in (
        ("wall", condition.wall / steps, wall),
        ("processor", condition.processor / steps, processor),
    ):
        print(f"lock held by mixing, {name}: {1e3 * seconds:.2f} ms a step, {seconds / step:.2%}")


def main() -> None:
    """Which measurement."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parts = parser.add_subparsers(dest="what", required=True)
    locked = parts.add_parser("lock", help="how long the learner's lock is held")
    locked.add_argument("--steps", type=int, default=12)
    locked.add_argument("--batch", type=int, default=8, help="subsequences of 21 frames")
    locked.add_argument("--pace", type=int, default=1, help="mixes a step")
    args = parser.parse_args()
    if args.what == "lock":
        lock(args.steps, args.batch, args.pace)


if __name__ == "__main__":
    main()
