"""What is done outside of the learner's lock: snapshots are one version, whole."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from hadpsgd.decentralized.core import pieces
from hadpsgd.decentralized.core.buffers import flatten
from hadpsgd.decentralized.core.events import Mix
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.pieces import Pieces
from hadpsgd.decentralized.core.sgd import Sgd

ELEMENTS = 200_000


def learner_of(module: nn.Module) -> Learner:
    """All weights zero."""
    learner = Learner(flatten(module), Sgd())
    learner.weights.zero_()
    return learner


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_pieces_are_done_once_by_any_number_of_threads(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE", 7)
    counts = torch.zeros(10_003)
    work = Pieces(len(counts), lambda piece: counts[piece].add_(1))

    def helped() -> None:
        work.finish()
        assert (counts == 1).all()  # not only begun

    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(helped) for _ in range(threads)]:
            future.result(60)


def test_a_piece_that_fails_holds_nobody() -> None:
    def fails(piece: slice) -> None:
        raise MemoryError(str(piece))

    work = Pieces(3, fails)
    with pytest.raises(MemoryError):
        work.finish()
    work.finish()


def test_snapshots_beside_updates_and_mixes_are_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event adds 1 to every weight, so version v is v everywhere."""
    monkeypatch.setattr(pieces, "PIECE", 1000)
    learner = learner_of(nn.Linear(ELEMENTS, 1, bias=False))
    over = threading.Event()
    torn: list[int] = []

    def compute() -> None:
        while learner.steps < 150 or learner.rounds < 50:
            learner.gradient.fill_(-1)
            learner.update(rate=1.0)
            if learner.steps % 3 == 0:
                learner.settle()
        over.set()

    def communicate() -> None:
        out = torch.empty_like(learner.weights)
        delta = torch.empty_like(learner.weights)
        while learner.rounds < 50 or not over.is_set():
            version, copying = learner.begin_snapshot(out)
            copying.finish()
            if not (out == version).all():
                torn.append(version)
            for _ in range(2):  # the second is added to the first, if no update comes between
                mix = Mix(round=learner.rounds, own=version, takes=())
                delta = learner.mix(mix, delta.fill_(1))

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(compute), pool.submit(communicate)]:
            future.result(120)
    assert not torn
    learner.settle()
    assert (learner.weights == learner.version).all()


def test_the_lock_is_free_while_a_snapshot_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only an update waits, for the pieces that it would change."""
    monkeypatch.setattr(pieces, "PIECE", 1000)
    learner = learner_of(nn.Linear(ELEMENTS, 1, bias=False))
    out = torch.full_like(learner.weights, -7)
    version, copying = learner.begin_snapshot(out)
    assert (out == -7).all()  # nothing is copied where the lock is held
    go, reached = threading.Event(), threading.Event()
    copy = copying._do

    def slowly(piece: slice) -> None:
        if piece.start == 0:
            reached.set()
            go.wait(60)
        copy(piece)

    copying._do = slowly
    with ThreadPoolExecutor(3) as pool:
        copied = pool.submit(copying.finish)
        assert reached.wait(60)

        def look() -> int:
            with learner.changed:
                return learner.version

        assert pool.submit(look).result(60) == version
        learner.gradient.fill_(-1)
        updated = pool.submit(learner.update, rate=1.0)
        go.set()
        updated.result(60)
        copied.result(60)
    assert (out == version).all() and (learner.weights == version + 1).all()


def test_a_snapshot_amid_a_gradient_knows_nothing_of_its_forward_pass() -> None:
    """Statistics move while the gradient is taken; they count with its update."""
    module = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    learner = Learner(flatten(module), Sgd())
    before, amid = torch.empty_like(learner.weights), torch.empty_like(learner.weights)
    learner.snapshot(before)
    learner.mix(Mix(round=0, own=0, takes=()), torch.ones_like(before))
    module(torch.randn(8, 3)).square().mean().backward()
    shard = len(before) // 2
    for part in (slice(0, shard), slice(shard, None)):
        learner.snapshot(amid[part], part)
    assert torch.equal(amid, before + 1)
