"""Hosts that are only network namespaces of this machine, their links shaped to a given rate.

Linux, as root. Every host has one interface, joined by a bridge; what it sends and what it is sent
passes a token bucket (`tc ... tbf`).
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

BRIDGE, PREFIX, INTERFACE = "hadbr", "hadns", "had0"
CLONE_NEWNET = 0x40000000


@dataclass(frozen=True)
class Hosts:
    """Namespaces of a race."""

    count: int

    @property
    def env(self) -> dict[str, str]:
        """By what processes in them find each other."""
        return {"MASTER_ADDR": address(0), "GLOO_SOCKET_IFNAME": INTERFACE}

    def enter(self, rank: int) -> None:
        """Move the calling process into the namespace of its rank."""
        with Path(f"/var/run/netns/{PREFIX}{rank}").open() as handle:
            if ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "cannot enter the network namespace")


def address(rank: int) -> str:
    """Of a host."""
    return f"10.77.0.{rank + 1}"


@contextmanager
def shaped(
    count: int, mbit: float, *, slow: Mapping[int, float] = {}, burst: str = "64kb"
) -> Iterator[Hosts]:
    """So many hosts, `mbit` megabits a second in each direction of each link.

    `slow`: host -> how many times slower its link is. `burst` passes at once, as `tc` has it.
    """
    try:
        _ip(f"link add {BRIDGE} type bridge")
        _ip(f"link set {BRIDGE} up")
        for rank in range(count):
            name, port = f"{PREFIX}{rank}", f"hadp{rank}"
            _ip(f"netns add {name}")
            _ip(f"link add {port} type veth peer name {INTERFACE} netns {name}")
            _ip(f"link set {port} master {BRIDGE}")
            _ip(f"link set {port} up")
            _ip(f"-n {name} addr add {address(rank)}/24 dev {INTERFACE}")
            _ip(f"-n {name} link set {INTERFACE} up")
            _ip(f"-n {name} link set lo up")
            rate = mbit / slow.get(rank, 1)
            bucket = f"root tbf rate {rate:g}mbit burst {burst} latency 200ms"
            _run(f"tc qdisc add dev {port} {bucket}")
            _run(f"tc -n {name} qdisc add dev {INTERFACE} {bucket}")
        yield Hosts(count)
    finally:
        for rank in range(count):
            _quietly(f"ip link del hadp{rank}")
            _quietly(f"ip netns del {PREFIX}{rank}")
        _quietly(f"ip link del {BRIDGE}")


def possible() -> bool:
    """Whether this machine lets us."""
    return os.geteuid() == 0 and all(
        any(Path(folder, tool).exists() for folder in ("/sbin", "/usr/sbin", "/bin", "/usr/bin"))
        for tool in ("ip", "tc")
    )


def _ip(words: str) -> None:
    _run(f"ip {words}")


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True)


def _quietly(command: str) -> None:
    subprocess.run(command.split(), check=False, capture_output=True)
