"""Batches that all learners draw from: whoever is free takes the next, each is used once an epoch.

The numbers of an epoch's batches are the blocks of a `Ledger` (core/work.py), of super-learners as
many batches as one has members. An epoch ends for a learner when all its blocks are done, by
whomever; until then it takes part in mixing.
"""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from torch.utils.data import DataLoader

from hadpsgd.decentralized.core.ahead import Ahead
from hadpsgd.decentralized.core.following import Following, Given, Leading, MemberSupply
from hadpsgd.decentralized.core.left import Left
from hadpsgd.decentralized.core.pace import Pace
from hadpsgd.decentralized.core.supply import Claims, Supply
from hadpsgd.decentralized.core.work import Ledger
from hadpsgd.decentralized.drawing import Drawn, check_resumed, drawn, sampler_of
from hadpsgd.decentralized.network.job_store import store_there
from hadpsgd.decentralized.network.rendezvous import Meeting
from hadpsgd.decentralized.share import too_few, with_batches
from hadpsgd.decentralized.strategies.mixing_engine import DecentralizedEngine
from hadpsgd.errors import UserError

KEPT = 1000
"""Batches, at most, by which a member of a super-learner may be ahead: more than make a step."""


class Pool:
    """Iterate over it once an epoch. Who leaves the loop gives back what it has claimed.

    Args:
        loader: a `DataLoader` over a dataset with numbered examples, or a sequence of batches.
        number: of this pool among a learner's, the same at all learners.
        seed: of the order.
        begin: called before anything is claimed; mixing has begun afterwards.
    """

    def __init__(
        self,
        loader: Any,
        engine: DecentralizedEngine,
        meeting: Meeting,
        *,
        number: int,
        seed: int,
        begin: Callable[[], object],
    ) -> None:
        self.engine = engine
        self.meeting = meeting
        self.name = f"work/{number}"
        self.seed = seed
        self.epoch = 0
        """Epochs done, by all learners."""
        self._begin = begin
        self._sampler = sampler_of(loader)
        self._given = loader
        self._eager = False
        """Whether processes load what is claimed beside the batch in hand."""
        if isinstance(loader, DataLoader):
            self._eager = loader.num_workers > 0
            self._draws = _Draws()
            self._loader = with_batches(loader, self._draws, ahead=1)
        self._blocks = 0
        """Of this epoch."""
        self._before = 0
        """Those of the epochs that were gone through."""
        self._done: list[int] = []
        """Blocks of this epoch that this learner was given, those of a checkpoint included."""
        self._reached = 0
        """The last block that it has come across."""
        self._left = Left(total=0)
        self._ledger: Ledger | None = None
        self._former: Ledger | None = None
        self._pace = Pace(engine.place.nodes, time.monotonic)
        self._ahead = Ahead()
        self._iterations = 0
        self._cut_short = False
        """Whether an iteration ended because all learners had stopped."""
        self._decisions: deque[Leading] = deque()
        """Of iterations that members may not have left."""
        self._stepped = 0
        """Steps before the last of them."""
        self._enter_epoch(0)

    def __len__(self) -> int:
        """Batches of an equal part of an epoch; a learner may get fewer or more."""
        return math.ceil(self._blocks / self.engine.place.nodes)

    @property
    def progress(self) -> float:
        """Epochs before the batch in hand, with a fraction: the progress of all learners."""
        return self.epoch + self._reached / self._blocks if self._blocks else float(self.epoch)

    def drawn(self) -> str:
        """Names the batches of this epoch, or of a sequence how many."""
        return str(len(self._given)) if self._sampler is None else self._draws.drawn.name

    def state(self) -> dict[str, Any]:
        """For a checkpoint: the epoch, and what this learner has done of it."""
        drawn = self.drawn() if self._done else ""
        return {"epoch": self.epoch, "done": list(self._done), "drawn": drawn}

    def restore(self, state: dict[str, Any]) -> None:
        """What `state` gave; all learners call it, and wait for each other.

        Raises:
            UserError: the epoch has other batches now.
        """
        name = f"{self.name}/from"
        store, place = self.meeting.prefixed(name), self.engine.place
        store.set(str(place.rank), json.dumps(state))
        self.meeting.wait_for_all(name)
        states = [json.loads(store.get(str(rank))) for rank in range(place.world)]
        # who had not seen the end of an epoch has nothing more to do in it
        self._enter_epoch(max(one["epoch"] for one in states))
        check_resumed(state if state["epoch"] == self.epoch else {}, self.drawn())
        now = [one["done"] for one in states if one["epoch"] == self.epoch]
        self._done = state["done"] if state["epoch"] == self.epoch else []
        self._left = Left.after((block for done in now for block in done), self._blocks)
        self._reached = max(self._left.frontier - 1, 0)

    def __iter__(self) -> Iterator[Any]:
        with store_there():
            yield from self._iterate()

    def _iterate(self) -> Iterator[Any]:
        if self._cut_short:
            raise UserError(
                "all learners have stopped, and this one goes on",
                fix="Leave the loop over epochs, too, when trainer.stopped",
            )
        if not self._blocks:
            raise too_few(learners=self.engine.place.size)
        self._begin()
        ledger = self._ledger or self._new_ledger()
        supply = self._supply(ledger)
        try:
            with supply:
                yield from self._batches(supply)
                self._cut_short = not supply.over
        finally:
            if not supply.over and self.engine.place.member == 0:
                ledger.give_back()
        if supply.over:
            self._end_epoch(ledger)

    def _batches(self, supply: Supply[None] | MemberSupply[None]) -> Iterator[Any]:
        """Until all are done, by whomever, or all learners stop."""
        while not (supply.over or self.engine.over):
            found = supply.take()
            if found is not None:
                yield from self._pass(found[0], supply)
            elif not supply.over:
                self.engine.rest()

    def _pass(self, first: int, supply: Supply[None] | MemberSupply[None]) -> Iterator[Any]:
        """Until there is none to draw, for now."""
        blocks: deque[int] = deque()
        for batch in self._load(_draw(first, supply, blocks)):
            block = blocks.popleft()
            self._done.append(block)
            self._reached = max(self._reached, block)
            try:
                yield batch
            finally:
                supply.finish(block)
            if self.engine.over:
                return

    def _load(self, blocks: Iterable[int]) -> Iterator[Any]:
        """This member's batches of them."""
        place = self.engine.place
        numbers = (block * place.size + place.member for block in blocks)
        if isinstance(self._given, DataLoader):
            self._draws.numbers = numbers
            return iter(self._loader)
        return (self._given[number] for number in numbers)

    def _new_ledger(self) -> Ledger:
        """Of the epoch that begins."""
        place = self.engine.place
        self._ledger = Ledger(
            self.meeting.prefixed(f"{self.name}/{self.epoch}"),
            self._left,
            learner=place.node,
            learners=place.nodes,
            pace=self._pace,
            ahead=self._ahead,
            first=self._before,
        )
        return self._ledger

    def _supply(self, ledger: Ledger) -> Supply[None] | MemberSupply[None]:
        """What is claimed in an iteration."""
        place = self.engine.place
        self._iterations += 1

        def living() -> tuple[int, Collection[int]]:
            return self.engine.living

        if place.size == 1:
            return Supply(ledger, _nothing, living=living, eager=self._eager)
        given = Given(
            self.meeting.prefixed(self.name),
            f"given/{place.node}/{self._iterations}",
            seconds=self.meeting.timeout.total_seconds(),
        )
        decisions: Leading | Following = (
            self._lead(Claims(ledger, living), given) if place.member == 0 else Following(given)
        )
        return MemberSupply(decisions, _nothing, check=self.engine.mixer.check)

    def _lead(self, claims: Claims, given: Given) -> Leading:
        """The decisions of this iteration.

        Once there was a step in an iteration, which takes all members, they all have left those
        before it. Others may have got nothing to do here, and be over at once: a member has yet to
        read so.
        """
        if self.engine.steps > self._stepped:
            while len(self._decisions) > 1:
                self._decisions.popleft().forget()
        self._stepped = self.engine.steps
        leading = Leading(claims, given, ahead=KEPT)
        self._decisions.append(leading)
        return leading

    def _end_epoch(self, ledger: Ledger) -> None:
        """Remove what nobody will look at any more."""
        if self.engine.place.member == 0:
            ledger.leave()
            if self._former is not None:
                self._former.tidy()
            self._former = ledger
        self._before += self._blocks
        self._enter_epoch(self.epoch + 1)

    def _enter_epoch(self, epoch: int) -> None:
        """Nothing of it is done."""
        self.epoch, self._done, self._reached, self._ledger = epoch, [], 0, None
        if self._sampler is not None:
            self._draws.drawn = drawn(self._sampler, seed=self.seed, epoch=epoch)
        count = len(self._given if self._sampler is None else self._draws.drawn.batches)
        self._blocks = count // self.engine.place.size
        self._left = Left(total=self._blocks)


class _Draws:
    """Stands in for a loader's batch sampler."""

    def __init__(self) -> None:
        self.drawn = Drawn(epoch=0, batches=[])
        """Of the epoch."""
        self.numbers: Iterable[int] = ()
        """Those to be loaded, as they are drawn."""

    def __iter__(self) -> Iterator[list[Any]]:
        for number in self.numbers:
            yield self.drawn.batches[number]


def _draw(
    first: int, supply: Supply[None] | MemberSupply[None], blocks: deque[int]
) -> Iterator[int]:
    """Blocks, until there is none for now; they are put into `blocks`, too."""
    found: tuple[int, None] | None = (first, None)
    while found is not None:
        blocks.append(found[0])
        yield found[0]
        found = supply.take()


def _nothing(block: int) -> None:
    """The batches are loaded elsewhere."""
