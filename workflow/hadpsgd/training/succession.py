"""What becomes of a super-learner, or a learner, when one of its ranks dies.

It leaves, and another one joins in its place; or those that are left go on, and new ones come to
them. If the first one died, the next one takes its place.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from typing import Protocol

from hadpsgd.training.crew import Crew
from hadpsgd.training.metrics import say
from hadpsgd.training.orders import Order, give
from hadpsgd.training.rank import Rank
from hadpsgd.training.turn import GO, READY

BAD_INPUT = 2
JOIN_SECONDS = 20.0
"""A newcomer that has lived so long is taken to have joined the others."""
ALIKE = 3
"""Who dies the same way so often, without having joined the others, is not started again."""


class Starting(Protocol):
    """Starts a rank: in which life; whether it returns to the first of its super-learner."""

    def __call__(self, number: int, *, life: int = 0, returns: bool = False) -> None: ...


class Succession:
    """On one host.

    Args:
        crew: who is there.
        start: a rank.
        refuse: one that found bad input.
        others_elsewhere: whether there are ranks on other hosts.
        replacements: how many that die are started again, to join the others.
        reduces: those that live go on until new ones come; if the first one died, the next one
            takes its place.
        waits: they do nothing but wait for them.
    """

    def __init__(
        self,
        crew: Crew,
        start: Starting,
        refuse: Callable[[Rank], None],
        *,
        others_elsewhere: bool,
        replacements: int,
        reduces: bool,
        waits: bool,
    ) -> None:
        self.crew = crew
        self._start = start
        self._refuse = refuse
        self.others_elsewhere = others_elsewhere
        self.replacements = replacements
        self.reduces = reduces
        self.waits = waits
        self._statuses: dict[int, list[int]] = {}
        self._lives: dict[int, int] = {}
        """How often each was started again as a newcomer."""

    def possible(self, rank: Rank) -> bool:
        """Whether there is somebody to go on with without it."""
        return self._reduces(rank) or self._others_take_part(rank)

    def fall(self, rank: Rank, status: int, how: str) -> None:
        """The others go on without it, and without its super-learner; newcomers join, if wanted."""
        if rank.number in self.crew.waiting:  # it died with another one, and is replaced already
            return
        failed, it, heir = f"rank {rank.number} failed ({how})", "it", self._heir(rank)
        colleagues, node = self.crew.colleagues(rank), self.crew.node(rank)
        if self._reduces(rank):
            there = [one for one in self.crew.numbers(node) if self.crew.lives_on(one)]
            others = f"rank {', '.join(map(str, there))}"
            how = "wait for new ones" if len(there) > 1 else "waits for new ones"
            how = how if self.waits else "go on" if len(there) > 1 else "alone"
            say(f"{failed}: the others go on, of its super-learner {others} {how}")
            self.crew.dismiss(self.crew.waiting_of(node))
            self._prepare(node, give_up=self._always_alike(rank, status))
            return
        self.crew.dismiss(self.crew.waiting_of(node))
        if heir is not None:
            alike = self._always_alike(rank, status)
            say(f"{failed}: the others go on, rank {heir.number} takes its place")
            self._put_in_place(heir, of=rank)
            self._prepare(node, give_up=alike)
            return
        if colleagues:
            it = "the super-learner"
            failed += f", and super-learner {node} with it"
        alike = self._always_alike(rank, status)
        for colleague in colleagues:
            colleague.closed()  # no order comes any more
        running = [one for one in colleagues if one.code is None]
        if refusing := [one for one in running if self.crew.end(one) == BAD_INPUT]:
            for one in refusing:  # of which this one died
                self._refuse(one)
            return
        if alike:
            say(f"{failed} {ALIKE} times: the others go on without {it}")
        elif self.replacements:
            self.replacements -= 1
            say(f"{failed}: the others go on, {it} joins again")
            for number in sorted(one.number for one in (rank, *colleagues)):
                self._lives[number] = self._lives.get(number, 0) + 1
                self._start(number, life=self._lives[number])
        else:
            say(f"{failed}: the others go on without {it}")

    def _reduces(self, dead: Rank) -> bool:
        """Whether its super-learner goes on without it: its first rank lives."""
        first = self.crew.ranks.get(self.crew.numbers(self.crew.node(dead)).start)
        if first is None or first is dead or not self.reduces:
            return False
        if self.waits and not self.replacements:
            return False
        return self.crew.lives_on(first.number) and time.monotonic() >= first.joins_until

    def _heir(self, dead: Rank) -> Rank | None:
        """Who takes the place of a first rank that died: the next one that lives, if none of them
        is between coming and taking part.
        """
        first = dead.number == self.crew.numbers(self.crew.node(dead)).start
        if not self.reduces or not first or dead.joins_until == float("inf"):
            return None
        if self.waits and not self.replacements:
            return None
        there = [one for one in self.crew.colleagues(dead) if self.crew.lives_on(one.number)]
        if any(time.monotonic() < one.joins_until for one in there):
            return None
        return min(there, key=lambda one: one.number, default=None)

    def _put_in_place(self, heir: Rank, *, of: Rank) -> None:
        """It has the first one's number and log from now on; that one has its."""
        node, number = self.crew.node(of), heir.number
        life = 1 + self._lives.get(of.number, 0)
        self._lives |= dict.fromkeys(self.crew.numbers(node), life)
        self.crew.ranks[of.number], self.crew.ranks[number] = heir, of
        heir.number, of.number = of.number, number
        heir.log, heir.begin = of.log, of.log.stat().st_size
        for rank in (*self.crew.colleagues(heir), heir):  # before it can be taken for the first one
            if rank.orders is not None:
                log = str(rank.log) if rank is heir else ""
                give(rank.orders, Order(rank=rank.number, life=life, log=log))

    def _prepare(self, node: int, *, give_up: bool) -> None:
        """Start those that are to come to a super-learner's first rank, if that is wanted."""
        numbers = self.crew.numbers(node)
        if self.replacements and not give_up:
            self.replacements -= 1
            life = 1 + self._lives.get(numbers[0], 0)
            self._lives |= dict.fromkeys(numbers, life)
            for number in numbers[1:]:
                if not self.crew.lives_on(number):
                    self._start(number, life=life, returns=True)
        elif self.waits:
            first = self.crew.ranks[numbers[0]]
            first.silent = "nobody comes for whom it waits"
            first.process.kill()

    def look_at_waiting(self, node: int) -> None:
        """Let them take their turn when all are ready; if one has died, others get ready."""
        waiting = self.crew.waiting_of(node)
        for rank in waiting:
            status = rank.process.poll()
            if status is None:
                continue
            self.crew.dismiss(waiting)
            if status == BAD_INPUT:
                self._refuse(rank)
            else:
                self._prepare(node, give_up=self._always_alike(rank, status))
            return
        if all(rank.ready for rank in waiting):
            numbers = ", ".join(str(rank.number) for rank in waiting)
            say(f"super-learner {node}: new rank {numbers} comes to rank {node * self.crew.size}")
            self._take_places(node)

    def _take_places(self, node: int) -> None:
        """If one of them dies before all take part, the super-learner joins as a whole."""
        first = self.crew.ranks[node * self.crew.size]
        first.joins_until = float("inf")
        for rank in self.crew.waiting_of(node):
            self.crew.ranks[rank.number] = self.crew.waiting.pop(rank.number)
            rank.joins_until = first.joins_until
            assert rank.turn is not None
            rank.turn.recv(len(READY))
            with contextlib.suppress(BrokenPipeError):  # it has ended, which is seen next
                rank.turn.sendall(GO)

    def takes_part(self, rank: Rank) -> None:
        """It counts from now on, as does the one to which it came, if it is the last to come."""
        rank.hang_up()
        rank.joins_until = 0.0
        first = self.crew.ranks[self.crew.numbers(self.crew.node(rank)).start]
        if all(colleague.turn is None for colleague in self.crew.colleagues(first)):
            first.joins_until = 0.0

    def _always_alike(self, rank: Rank, status: int) -> bool:
        """Whether another start would end as the last ones did; kill -9 comes from outside."""
        statuses = self._statuses.setdefault(rank.number, [])
        if time.monotonic() > rank.joins_until:
            statuses.clear()
        statuses.append(status)
        return statuses[-ALIKE:] == [status] * ALIKE and status != -signal.SIGKILL

    def _others_take_part(self, without: Rank) -> bool:
        """Whether there is somebody to go on with; other hosts are trusted to have someone."""
        now, gone = time.monotonic(), [without, *self.crew.colleagues(without)]
        others = (rank for rank in self.crew.running() if rank not in gone)
        here = any(now > rank.joins_until for rank in others)
        return here or self.others_elsewhere
