"""Inputs of the model of time from a short run on this machine.

Measured are a learner's gradient, a pair of local sockets, and how much one slows the other. Other
machines, and the links between them, are not measured.
"""

from __future__ import annotations

import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import torch

from hadpsgd.models.blstm import BLSTM, Shape
from hadpsgd.planning.cluster import Compute, Link, check

FEWEST_STEPS = 3
"""Of each batch, after one that is not counted."""
MOST_STEPS = 200
MOST_CONTENTION = 0.95
CHUNK = 1 << 20
"""Bytes handed to a socket at once."""
PINGS = 200


@dataclass(frozen=True, kw_only=True)
class Task:
    """The model whose gradients are timed."""

    shape: Shape
    input_dim: int = 260
    num_pdfs: int = 32_000
    frames: int = 21
    device: str = "cpu"

    def gradient(self, batch: int) -> Callable[[], None]:
        """A function that computes one gradient of random input, and waits for its end."""
        model = BLSTM(self.shape, input_dim=self.input_dim, num_pdfs=self.num_pdfs, seed=1)
        model.to(self.device)
        x = torch.randn(batch, self.frames, self.input_dim, device=self.device)
        targets = torch.randint(self.num_pdfs, (batch, self.frames), device=self.device)

        def gradient() -> None:
            model.zero_grad()
            model.loss(x, targets).backward()
            if x.is_cuda:
                torch.cuda.synchronize(x.device)

        return gradient

    @property
    def parameters(self) -> int:
        """Of the model."""
        model = BLSTM(self.shape, input_dim=self.input_dim, num_pdfs=self.num_pdfs, device="meta")
        return sum(parameter.numel() for parameter in model.parameters())


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was seen of gradients."""

    compute: Compute
    batches: tuple[int, int]
    """The two that were timed."""
    seconds: tuple[float, float]
    """Median of a gradient of each."""


def measure_compute(task: Task, *, batch: int, seconds: float) -> Measured:
    """Time gradients of two batches, and draw the line through them.

    The larger one is `batch`, or where that takes too long the largest power of two below it.

    Args:
        task: the model.
        batch: subsequences of a learner's gradient that are wanted.
        seconds: that may be spent, roughly.
    """
    check("batch", batch)
    check("seconds of measuring", seconds)
    large = _affordable(task, batch=batch, seconds=seconds / 4 / (FEWEST_STEPS + 1))
    small = max(1, large // 4)
    many = timed(task.gradient(large), seconds / 4)
    few = timed(task.gradient(small), seconds / 4) if small < large else many
    return Measured(
        compute=line(few=few, many=many, batches=(small, large)),
        batches=(small, large),
        seconds=(statistics.median(few), statistics.median(many)),
    )


def line(*, few: list[float], many: list[float], batches: tuple[int, int]) -> Compute:
    """Compute from seconds of gradients of two batches, the small one first.

    Where the larger batch was no slower, or the line would cut the axis below zero, all time is
    proportional to the larger batch.
    """
    small, large = batches
    low, high = statistics.median(few), statistics.median(many)
    each = (high - low) / (large - small) if large > small else 0.0
    fixed = high - each * large
    if each <= 0 or fixed < 0:
        each, fixed = high / large, 0.0
    return Compute(each=each, half_batch=fixed / each, noise=_spread(many))


def _spread(values: list[float]) -> float:
    """Standard deviation over median, from the middle half: what else the machine did is out."""
    if len(values) < 4:
        return 0.0
    low, middle, high = statistics.quantiles(values, n=4)
    return (high - low) / 1.349 / middle


def _affordable(task: Task, *, batch: int, seconds: float) -> int:
    """`batch`, or the largest power of two below it whose gradient stays below `seconds`."""
    size = 1
    while size < batch:
        gradient = task.gradient(size)
        gradient()
        begin = time.perf_counter()
        gradient()
        if 2 * (time.perf_counter() - begin) > seconds:
            return size
        size *= 2
    return batch


def timed(function: Callable[[], None], seconds: float) -> list[float]:
    """Seconds of each call for so long, at least `FEWEST_STEPS`; a first one is not counted."""
    function()
    found: list[float] = []
    end = time.perf_counter() + seconds
    while len(found) < FEWEST_STEPS or (time.perf_counter() < end and len(found) < MOST_STEPS):
        begin = time.perf_counter()
        function()
        found.append(time.perf_counter() - begin)
    return found


def measure_loopback(seconds: float) -> Link:
    """Bytes a second and latency of a pair of sockets between two threads of this process."""
    check("seconds of measuring", seconds)
    with _pair() as (near, far):
        stop = threading.Event()
        sender = threading.Thread(target=_send, args=(far, stop), daemon=True)
        sender.start()
        buffer = bytearray(CHUNK)
        near.recv_into(buffer)
        received, begin = 0, time.perf_counter()
        while (passed := time.perf_counter() - begin) < seconds:
            received += near.recv_into(buffer)
        stop.set()
        near.close()
        sender.join()
    return Link(bandwidth=received / passed, latency=_latency())


def _latency() -> float:
    """Half of the median way of one byte there and back."""
    with _pair() as (near, far):
        echo = threading.Thread(target=_echo, args=(far,), daemon=True)
        echo.start()

        def ping() -> None:
            near.sendall(b"p")
            near.recv(1)

        ways = [_once(ping) for _ in range(PINGS)]
        near.close()
        echo.join()
    return statistics.median(ways) / 2


def _once(function: Callable[[], None]) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def measure_contention(task: Task, *, seconds: float, batch: int = 1) -> float:
    """Share of a gradient's speed that is lost while a local socket is kept busy beside it."""
    check("seconds of measuring", seconds)
    gradient = task.gradient(batch)
    alone = statistics.median(timed(gradient, seconds / 2))
    with _pair() as (near, far):
        stop = threading.Event()
        sender = threading.Thread(target=_send, args=(far, stop), daemon=True)
        receiver = threading.Thread(target=_drain, args=(near,), daemon=True)
        sender.start()
        receiver.start()
        beside = statistics.median(timed(gradient, seconds / 2))
        stop.set()
        far.shutdown(socket.SHUT_RDWR)
        sender.join()
        receiver.join()
    return lost_share(alone=alone, beside=beside)


def lost_share(*, alone: float, beside: float) -> float:
    """1 - alone / beside, between 0 and `MOST_CONTENTION`."""
    return min(MOST_CONTENTION, max(0.0, 1 - alone / beside))


@contextmanager
def _pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    with near, far:
        yield near, far


def _send(sock: socket.socket, stop: threading.Event) -> None:
    chunk = bytes(CHUNK)
    with suppress(OSError):
        while not stop.is_set():
            sock.sendall(chunk)


def _drain(sock: socket.socket) -> None:
    buffer = bytearray(CHUNK)
    with suppress(OSError):
        while sock.recv_into(buffer):
            pass


def _echo(sock: socket.socket) -> None:
    with suppress(OSError):
        while byte := sock.recv(1):
            sock.sendall(byte)
