"""How fast two learners exchange a model: the engine, a raw socket pair, gloo; in turn, in one run.

    python benchmarks/wire_throughput.py                        # this host's loopback
    sudo python benchmarks/wire_throughput.py --mbit 1000 100   # hosts that are network namespaces

Each of two processes sends its 164.6 MiB and receives the other's at the same time. The raw pair is
one TCP connection, a thread for each direction, sendall and recv_into: nobody can be faster. Each
round has all contestants one after the other, so that what else the machine does meets all alike;
shown is the median over the rounds of (bytes a second) over those of the raw pair of the same
round, and the processor time of both processes for each MB (10^6 bytes) that arrived.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import statistics
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import torch
import torch.distributed as dist
from torch import Tensor
from training_links import INTERFACE, Hosts, address, possible, shaped

from hadpsgd.decentralized.core.note import Note
from hadpsgd.decentralized.network import tcp
from hadpsgd.decentralized.network.rounding import ROUNDINGS, Sender, message_like
from hadpsgd.decentralized.network.tcp import TcpTransport

ELEMENTS = 43_154_944
BUFFER_BYTES = 4 * 2**20
"""Of the raw pair's sockets, as of the engine's."""
Contestant = Callable[[int], object]
"""Exchanges in round number n."""


def raw(rank: int, host: str, mine: Tensor, theirs: Tensor) -> Contestant:
    """One connection, two threads."""
    listener = socket.create_server((host, 0)) if rank else None
    places: list[object] = [None, None]
    dist.all_gather_object(places, listener.getsockname() if listener else None)
    if listener:
        sock = listener.accept()[0]
    else:
        there = places[1]
        assert isinstance(there, tuple)
        sock = socket.create_connection(there)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    going, coming = (tensor.numpy().data.cast("B") for tensor in (mine, theirs))

    def exchange(_: int) -> None:
        sending = threading.Thread(target=sock.sendall, args=(going,))
        sending.start()
        rest = coming
        while rest:
            rest = rest[sock.recv_into(rest) :]
        sending.join()

    return exchange


def engine(rank: int, host: str, mine: Tensor) -> Contestant:
    """What AD-PSGD does."""
    published: list[object] = []
    places: list[object] = [None, None]

    def lookup(j: int) -> tuple[str, int]:
        found = places[j]
        assert isinstance(found, tuple)
        return found

    tcp.shelf_of = lambda *_, **__: None  # over the wire on one host, too
    transport = TcpTransport(rank, mine, publish=published.append, lookup=lookup, host=host)
    dist.all_gather_object(places, published[0])
    transport.outgoing().copy_(mine)
    return lambda number: transport.exchange(number, [1 - rank], [1 - rank], Note())


def gloo(rank: int, mine: Tensor, theirs: Tensor) -> Contestant:
    """isend and irecv."""

    def exchange(number: int) -> None:
        works = [
            dist.irecv(theirs, 1 - rank, tag=number),
            dist.isend(mine, 1 - rank, tag=number),
        ]
        for work in works:
            assert work is not None
            work.wait()

    return exchange


def learner(rank: int, pipe: Connection, port: int, rounds: int, hosts: Hosts | None) -> None:
    """One of the two processes: (name, seconds, processor seconds) of each exchange."""
    torch.set_num_threads(1)
    host, first = "127.0.0.1", "127.0.0.1"
    if hosts is not None:
        hosts.enter(rank)
        os.environ["GLOO_SOCKET_IFNAME"] = INTERFACE
        host, first = address(rank), address(0)
    dist.init_process_group("gloo", f"tcp://{first}:{port}", rank=rank, world_size=2)
    mine, theirs = torch.full((ELEMENTS,), float(rank)), torch.zeros(ELEMENTS)
    contestants = {
        "raw": raw(rank, host, mine, theirs),
        "engine": engine(rank, host, mine),
        "gloo": gloo(rank, mine, theirs),
    }
    took: list[tuple[str, float, float]] = []
    for number in range(rounds + 1):
        for name, exchange in contestants.items():
            dist.barrier()
            begin = time.perf_counter(), time.process_time()
            exchange(number)
            seconds, processor = time.perf_counter() - begin[0], time.process_time() - begin[1]
            if number:  # the first one makes connections, and buffers their pages
                took.append((name, seconds, processor))
    dist.barrier()
    pipe.send(took)
    dist.destroy_process_group()


def race(rounds: int, hosts: Hosts | None, where: str) -> None:
    """Print what each contestant needed."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe(duplex=False) for _ in range(2)]
    running = [
        context.Process(target=learner, args=(rank, pipes[rank][1], port, rounds, hosts))
        for rank in range(2)
    ]
    for process in running:
        process.start()
    both = list(zip(*(pipe[0].recv() for pipe in pipes), strict=True))
    for process in running:
        process.join()
    megabytes = 2 * ELEMENTS * 4 / 1e6
    seconds: dict[str, list[float]] = {}
    processor: dict[str, list[float]] = {}
    for one, other in both:
        seconds.setdefault(one[0], []).append(max(one[1], other[1]))
        processor.setdefault(one[0], []).append((one[2] + other[2]) / megabytes)
    print(f"{where}: {rounds} rounds")
    for name, found in seconds.items():
        shares = [r / s for r, s in zip(seconds["raw"], found, strict=True)]
        print(
            f"  {name:7s} {statistics.median(found):8.3f} s, of the raw pair's speed "
            f"{statistics.median(shares):6.1%} ({min(shares):.1%} to {max(shares):.1%}), "
            f"processor {1e3 * statistics.median(processor[name]):.3f} ms/MB"
        )


def rounding(rounds: int) -> None:
    """Processor time of rounding a message, and of reading one."""
    torch.set_num_threads(1)
    weights = torch.randn(ELEMENTS)
    for name, way in ROUNDINGS.items():
        if way is None:
            continue
        sender, message = Sender(way, weights), message_like(weights, way)
        sending, reading = [], []
        for _ in range(rounds + 1):
            begin = time.thread_time()
            sender.send(weights, message)
            sender.count()
            middle = time.thread_time()
            way.decode(message, weights)
            sending.append(middle - begin)
            reading.append(time.thread_time() - middle)
        print(
            f"{name}: {message.nbytes / 2**20:.1f} MiB, processor "
            f"{statistics.median(sending[1:]):.3f} s to send, "
            f"{statistics.median(reading[1:]):.3f} s to read"
        )


def main() -> None:
    """Loopback, or links of so many megabits."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--mbit", type=float, nargs="*", default=[], help="of shaped links")
    parser.add_argument("--rounding", action="store_true", help="what rounding takes instead")
    args = parser.parse_args()
    if args.rounding:
        rounding(args.rounds)
        return
    if args.mbit and not possible():
        parser.error("--mbit makes network namespaces: as root, with ip and tc")
    if not args.mbit:
        race(args.rounds, None, "loopback")
    for mbit in args.mbit:
        with shaped(2, mbit) as hosts:
            race(args.rounds, hosts, f"{mbit:g} Mbit/s")


if __name__ == "__main__":
    main()
