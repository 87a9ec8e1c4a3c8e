"""Weights that partners on one host read where they lie: same values, nothing torn."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import run
from torch import Tensor

from hadpsgd.decentralized.core.note import Note
from hadpsgd.decentralized.network import link, tcp
from hadpsgd.decentralized.network.connections import Address
from hadpsgd.decentralized.network.link import Link
from hadpsgd.decentralized.network.shelf import Shelf, Shown
from hadpsgd.decentralized.network.tcp import TcpTransport
from hadpsgd.decentralized.network.transport import UnsettledError
from hadpsgd.decentralized.network.wire import SIZE


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes that go over connections."""
    numbers: list[int] = []
    send = Link.send

    def counting(one: Link) -> int:
        numbers.append(send(one))
        return numbers[-1]

    monkeypatch.setattr(Link, "send", counting)
    return numbers


@pytest.fixture
def pair() -> Iterator[list[TcpTransport]]:
    """Two learners."""
    made = two(5000)
    yield made
    for transport in made:
        transport.close()


def swap(
    pair: list[TcpTransport],
    number: int,
    payloads: Sequence[Tensor | None] = (None, None),
    into: Sequence[Tensor] = (),
) -> list[Tensor]:
    """What each has of the other, copied."""

    def work(rank: int) -> Tensor:
        pair[rank].outgoing().fill_(100 * rank + number)
        came = pair[rank].exchange(
            number,
            [1 - rank],
            [1 - rank],
            Note(),
            payload=payloads[rank],
            into=[into[rank]] if into else None,
        )
        return came[1 - rank].weights.clone()

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(work, range(2)))


def two(elements: int, **options: object) -> list[TcpTransport]:
    """Two that know each other."""
    addresses: dict[int, Address] = {}
    like = torch.zeros(elements, dtype=torch.float64)
    return [
        TcpTransport(
            rank,
            like,
            publish=partial(addresses.__setitem__, rank),
            lookup=addresses.get,
            **options,  # type: ignore[arg-type]
        )
        for rank in range(2)
    ]


def test_once_they_know_each_other_only_headers_are_sent(
    pair: list[TcpTransport], sent: list[int]
) -> None:
    swap(pair, 0)
    for number in range(1, 9):
        before = sum(sent)
        first, second = swap(pair, number)
        assert (first == 100 + number).all() and (second == number).all()
    # a place, and the acknowledgement, of each
    assert sum(sent) - before == 4 * SIZE
    assert [each.bytes_sent for each in pair] == [9 * 40_000] * 2, "weights count wherever they go"


def test_who_has_placed_something_has_begun(pair: list[TcpTransport]) -> None:
    """As one who has sent something."""
    swap(pair, 0)
    with ThreadPoolExecutor(1) as pool:
        early = pool.submit(pair[1].exchange, 1, [0], [0], Note())
        until = time.monotonic() + 5
        while not pair[0].invited(1) and time.monotonic() < until:
            pair[0].wait(0.01)
        found = [number for number in (1, 2) if pair[0].invited(number)]
        pair[0].exchange(1, [1], [1], Note())
        early.result(20)
    assert found == [1]


@pytest.mark.parametrize("lacks", ["shelf", "view", "pinned"])
def test_who_cannot_see_the_other_gets_messages(
    lacks: str, monkeypatch: pytest.MonkeyPatch, sent: list[int]
) -> None:
    """On another system, in another container, with a GPU."""

    def fails(*_: object, **__: object) -> None:
        raise OSError

    if lacks == "shelf":
        monkeypatch.setattr(tcp, "shelf_of", lambda *_, **__: None)
    if lacks == "view":
        monkeypatch.setattr(link, "Shown", fails)
    if lacks == "pinned":  # as where there is no GPU to pin it for
        monkeypatch.setattr(torch, "empty_like", lambda like, **_: torch.zeros_like(like))
    made = two(5000, pin=lacks == "pinned")
    for number in range(4):
        first, second = swap(made, number)
        assert (first == 100 + number).all() and (second == number).all()
    for transport in made:
        transport.close()
    assert sum(sent) > 8 * 40_000


def test_what_lies_elsewhere_is_put_there_if_there_is_room(sent: list[int]) -> None:
    """Parts of mixes, to several at once; more than there is room for goes by message."""
    made = two(5000, room=40_000)
    swap(made, 0)
    for number, places, by_message in ((1, 1, 0), (2, 2, 1), (3, 1, 0)):
        payloads = [torch.rand(places * 5000, dtype=torch.float64) for _ in range(2)]
        into = [torch.zeros(places * 5000, dtype=torch.float64) for _ in range(2)]
        before = sum(sent)

        swap(made, number, payloads, into)
        assert torch.equal(into[0], payloads[1]) and torch.equal(into[1], payloads[0])
        assert (sum(sent) - before > 40_000) == bool(by_message)
    for transport in made:
        transport.close()


def test_who_was_given_up_takes_nothing_that_may_be_torn(
    pair: list[TcpTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood still in the middle of a copy, and its partner has begun anew."""
    swap(pair, 0)
    copy = np.copyto
    monkeypatch.setattr(tcp, "LOOK_UP_SECONDS", 0.01)

    def slowly(target: np.ndarray, source: np.ndarray) -> None:
        copy(target, source)
        pair[1].interrupted = lambda: True
        giving_up.result(20)  # the sender gives up meanwhile

    def gives_up() -> None:
        pair[1].outgoing().fill_(7.0)
        with pytest.raises(UnsettledError):
            pair[1].exchange(1, [], [0], Note())

    monkeypatch.setattr(np, "copyto", slowly)
    with ThreadPoolExecutor(1) as pool:
        giving_up = pool.submit(gives_up)
        with pytest.raises(UnsettledError) as raised:
            pair[0].exchange(1, [1], [], Note())
    assert raised.value.lost == {1} and not raised.value.arrived


@given(data=st.data(), count=st.integers(1, 300), room=st.integers(0, 2000))
@settings(max_examples=60, deadline=None)
def test_what_was_placed_stays_until_it_is_cleared(
    data: st.DataObject, count: int, room: int
) -> None:
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64, torch.int16]))
    shelf = Shelf(torch.zeros(count, dtype=dtype), room=room)
    shown = Shown(shelf.description, shelf.nbytes)

    def seen(tensor: Tensor, at: int, turn: int) -> bool:
        into = torch.zeros_like(tensor)
        there = shown.take(into.numpy().data.cast("B"), at=at, turn=turn)
        assert not there or torch.equal(into, tensor)
        return there

    for _ in range(3):
        shelf.snapshot.copy_(torch.randint(0, 99, (count,)))
        drawn = data.draw(st.lists(st.integers(1, 120), max_size=6))
        payloads = [torch.randint(0, 99, (n,)).to(dtype) for n in drawn]
        payloads += [shelf.snapshot, shelf.snapshot[count // 3 :]]
        places = [shelf.place(tensor) for tensor in payloads]
        assert [shelf.place(tensor) for tensor in payloads] == places
        assert places[-2] is not None and places[-1] is not None
        for tensor, at in zip(payloads, places, strict=True):
            assert at is None or seen(tensor, at, shelf.turn)
        turn = shelf.turn
        shelf.clear()
        assert not seen(shelf.snapshot, 64, turn)
    assert not seen(torch.zeros(4 * 64 + count + room), 64, shelf.turn), "beyond its end"
    shelf.close()


def test_memory_that_is_not_there_is_not_read() -> None:
    """As of a learner on another host, whose process has another one's number here."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = Link(socket.create_connection(server.getsockname()), peer=0)
        ours = Link(server.accept()[0], peer=1)
    shelf = Shelf(torch.zeros(4))
    for gone in (True, False):
        theirs.show(shelf, 1)
        if gone:
            shelf.close()
            shelf = Shelf(torch.zeros(4))
        theirs.send()
        assert not select.select([theirs.sock], [], [], 0.1)[0]
        assert not ours.read_header() and not theirs.read_header()
        assert theirs.seen is not gone
    shelf.close()
    ours.sock.close()
    theirs.sock.close()


def test_who_has_another_address_is_shown_nothing() -> None:
    """As another host's, or one in a network namespace of its own, whose links may be slow."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname(), source_address=("127.0.0.2", 0))
        links = Link(client, peer=0), Link(server.accept()[0], peer=1)
    shelf = Shelf(torch.zeros(4))
    for each in links:
        each.show(shelf, 1)
        assert not each.outbox
        each.sock.close()
    shelf.close()


def by_files(rank: int, folder: Path) -> int:
    """A learner that finds the other one by a file; the bytes of its connection's last rounds."""

    def publish(address: Address) -> None:
        part = folder / f"{rank}.part"
        part.write_text(json.dumps(address))
        part.rename(folder / str(rank))

    def lookup(j: int) -> Address | None:
        found = folder / str(j)
        return tuple(json.loads(found.read_text())) if found.exists() else None

    sent, send = [0], Link.send

    def counting(one: Link) -> int:
        sent.append(send(one))
        return sent[-1]

    Link.send = counting  # type: ignore[method-assign,assignment]
    made = TcpTransport(rank, torch.zeros(5000), publish=publish, lookup=lookup)
    for number in range(20):
        if number == 10:
            sent.clear()
        made.outgoing().fill_(100 * rank + number)
        came = made.exchange(number, [1 - rank], [1 - rank], Note())
        assert (came[1 - rank].weights == 100 * (1 - rank) + number).all()
    total = sum(sent)
    made.close()
    return total


def test_processes_read_each_other(tmp_path: Path) -> None:
    assert run(2, by_files, tmp_path) == [20 * SIZE] * 2
