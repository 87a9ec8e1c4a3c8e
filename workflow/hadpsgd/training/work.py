"""What a learner trains on next: a share of its own, or blocks of the work that all share.

With a synchronous strategy, learner r does part r of every step. With an asynchronous one, parts
of steps are blocks, claimed in their order by whoever is free (`decentralized/core/work.py`): block
b is part b mod L of step b // L of the run, L the number of learners. The learning rate is that of
the block's step, so it goes by the progress of all. Of super-learners, L is their number; each
member does its own part of the super-learner's block (`decentralized/core/following.py`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol

from hadpsgd.decentralized.core.engine import Counted
from hadpsgd.decentralized.core.following import (
    Beginning,
    Following,
    Given,
    Leading,
    MemberSupply,
)
from hadpsgd.decentralized.core.left import Left
from hadpsgd.decentralized.core.place import Place
from hadpsgd.decentralized.core.supply import Claims, Supply
from hadpsgd.decentralized.core.work import Ledger
from hadpsgd.decentralized.network.rendezvous import Meeting
from hadpsgd.decentralized.record import reading
from hadpsgd.decentralized.strategies.mixing_engine import DecentralizedEngine
from hadpsgd.decentralized.topology.mixing import MixingSchedule
from hadpsgd.errors import UserError
from hadpsgd.training.data import Example, Feed
from hadpsgd.training.engines import record_folder
from hadpsgd.training.job import Job
from hadpsgd.training.saved import Saved
from hadpsgd.training.staging import Sent


@dataclass(frozen=True, kw_only=True)
class Piece:
    """The minibatch of one gradient."""

    example: Example
    rank: int
    """Whose part of the step it is."""
    step: int
    """Of the run."""
    last: bool = False
    """Whether it is this learner's last one."""
    block: int | None = None
    """Its number, where learners share their work."""


class Work(AbstractContextManager["Work"], Protocol):
    """Where a learner's minibatches come from."""

    over: bool
    """Whether this learner has nothing more to do, nor will have."""
    progress: int
    """Steps of the run that are done, as far as this learner has come across."""

    def take(self) -> Piece | None:
        """The next one; None: there is none now."""

    def finish(self, piece: Piece) -> None:
        """Its gradient is applied."""

    def welcome(self, life: int) -> None:
        """Tell new members of the super-learner, which are of that life, what is under way.

        They begin with it. Only where members may go on alone.
        """


class OwnShare(Work):
    """Learner r does part r of every step, from `start` to `total`."""

    def __init__(self, feed: Feed, *, start: int, total: int) -> None:
        self.feed = feed
        self.total = total
        self.progress = start
        self.over = start >= total
        self._batches = feed.batches(start, total)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """What was read ahead goes."""
        self._batches.close()

    def take(self) -> Piece:
        """Never waits for other learners."""
        return Piece(
            example=next(self._batches),
            rank=self.feed.rank,
            step=self.progress,
            last=self.progress + 1 == self.total,
        )

    def finish(self, piece: Piece) -> None:
        """On to the next step."""
        self.progress = piece.step + 1
        self.over = piece.last

    def welcome(self, life: int) -> None:
        """Nobody comes: all members are needed."""


class SharedWork(Work):
    """Blocks from a supply, `total` steps in all; `progress` is that of a former start."""

    def __init__(
        self,
        supply: Supply[Sent] | MemberSupply[Sent],
        feed: Feed,
        place: Place,
        *,
        progress: int,
        total: int,
    ) -> None:
        self.supply = supply
        self.feed = feed
        self.place = place
        self.total = total
        self.progress = progress
        self.over = False

    def __enter__(self) -> SharedWork:
        """Begin to claim."""
        self.supply.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Claim no more."""
        self.supply.__exit__(kind, error, trace)

    def take(self) -> Piece | None:
        """None while others do what is left."""
        found = self.supply.take()
        if found is None:
            self.over = self.supply.over
            if self.over:
                self.progress = self.total
            return None
        block, sent = found
        step, part = divmod(block, self.place.nodes)
        rank = part * self.place.size + self.place.member
        return Piece(example=sent.arrived(), rank=rank, step=step, block=block)

    def welcome(self, life: int) -> None:
        """The decision that was taken last."""
        supply = self.supply
        assert isinstance(supply, MemberSupply) and isinstance(supply.decisions, Leading)
        given = supply.decisions.given
        begin = Beginning(prefix=given.prefix, number=supply.taken - 1, progress=self.progress)
        given.of(given_by(self.place, life)).introduce(begin)

    def finish(self, piece: Piece) -> None:
        """Blocks that were given back are of steps gone by."""
        assert piece.block is not None
        self.supply.finish(piece.block)
        self.progress = max(self.progress, piece.step + 1)


def given_by(place: Place, life: int) -> str:
    """Prefix of what the first member tells the members of a life of its super-learner."""
    return f"given/{place.node}/{life}"


def shares(job: Job) -> bool:
    """Whether the learners of a run share their work."""
    engine = job.engine
    return isinstance(engine, DecentralizedEngine) and not engine.strategy.synchronous


def work_of(job: Job, saved: Saved | None) -> Work:
    """What this learner does from here on: from the start, a checkpoint, or as a newcomer.

    Raises:
        UserError: a checkpoint lies behind the end.
        TimeoutError: nobody says what is left, or where a super-learner begins.
    """
    engine, place = job.engine, job.engine.place
    if not shares(job):
        return OwnShare(job.feed, start=engine.steps, total=job.total)
    assert isinstance(engine, DecentralizedEngine)
    supply: Supply[Sent] | MemberSupply[Sent]
    if place.size == 1:
        claims, progress = _claims(job, engine, saved)
        supply = Supply(claims.ledger, job.feed.block, living=claims.living)
    else:
        given = Given(
            job.meeting.prefixed("work"),
            given_by(place, job.meeting.life),
            seconds=job.meeting.timeout.total_seconds(),
        )
        decisions: Leading | Following
        if place.member == 0:
            claims, progress = _claims(job, engine, saved)
            given.introduce(Beginning(prefix=given.prefix, progress=progress))
            decisions = Leading(claims, given)
        else:
            begin = given.beginning()
            decisions, progress = Following(given.of(begin.prefix), begin.number), begin.progress
        supply = MemberSupply(
            decisions,
            lambda block: job.feed.block(block * place.size + place.member),
            check=engine.mixer.check,
        )
    return SharedWork(supply, job.feed, place, progress=progress, total=job.total)


def _claims(job: Job, engine: DecentralizedEngine, saved: Saved | None) -> tuple[Claims, int]:
    """Those of a (super-)learner, and the steps of the run that it has come across."""
    assert engine.recorder is not None
    folder, recorder, place = job.checkpoints.folder, engine.recorder, engine.place
    store = job.meeting.prefixed("work")

    def done_by(node: int, until: int) -> set[int]:
        assert recorder.lives is not None
        counted = recorder.lives.counted(node, until=until)
        return set(_blocks(folder, counted, recorder.schedule, node=node))

    if place.rank == 0 and not job.meeting.joining:
        done = done_before(saved, folder, recorder.schedule) if saved is not None else {}
        everybody = (block for blocks in done.values() for block in blocks)
        store.set("left", Left.after(everybody, job.total * place.nodes).to_json())
    left = _what_is_left(job.meeting)
    if left.frontier > left.total:
        raise behind_the_end(job, left.frontier // place.nodes)
    ledger = Ledger(
        store,
        left,
        learner=place.node,
        learners=place.nodes,
        generation=engine.living[0] if job.meeting.joining else 0,
        used=done_by,
        durable=recorder.flush,
    )
    progress = max(recorder.done, default=-1) // place.nodes + 1
    return Claims(ledger, lambda: engine.living), progress


def done_before(saved: Saved, folder: Path, schedule: MixingSchedule) -> dict[int, Sequence[int]]:
    """Blocks that super-learners had done by a checkpoint, of the dead, too.

    As their parts have them; the records of the dead are read, up to where they count.
    """
    done: dict[int, Sequence[int]] = {
        node: blocks.tolist() for node, blocks in saved.blocks_done().items()
    }
    records = saved.records()
    for node in set(range(schedule.learners)) - done.keys():
        done[node] = _blocks(folder, records.get(node), schedule, node=node)
    return done


def _blocks(
    folder: Path, counted: Counted | None, schedule: MixingSchedule, *, node: int
) -> list[int]:
    """Those in what counts of a record."""
    if counted is None:
        return []
    file = record_folder(folder) / counted.file
    return reading.blocks(file, schedule, node=node, length=counted.length)


def behind_the_end(job: Job, step: int) -> UserError:
    """A checkpoint that is not of this run."""
    return UserError(
        f"a checkpoint of step {step}, and the run ends at {job.total}",
        where=job.checkpoints.folder,
        fix="Remove it, or give the run the epochs that it was made with",
    )


def _what_is_left(meeting: Meeting) -> Left:
    """As rank 0 says: it alone reads all records."""
    store = meeting.prefixed("work")
    deadline = time.monotonic() + meeting.timeout.total_seconds()
    while not store.check(["left"]):
        if time.monotonic() > deadline:
            raise TimeoutError("rank 0 came and then fell silent")
        time.sleep(0.01)
    return Left.from_json(store.get("left"))
