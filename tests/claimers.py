"""Learners that claim blocks in a store, one call of it at a time, as a test says."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from greenlet import getcurrent, greenlet

from hadpsgd.decentralized.core.engine import Counted, ExcludedError
from hadpsgd.decentralized.core.events import Update
from hadpsgd.decentralized.core.left import Left
from hadpsgd.decentralized.core.stores import LocalStore, Store
from hadpsgd.decentralized.core.supply import Claims
from hadpsgd.decentralized.core.work import Ledger
from hadpsgd.decentralized.record import reading
from hadpsgd.decentralized.record.lives import Lives, first_file
from hadpsgd.decentralized.record.record import Recorder
from hadpsgd.decentralized.topology.schedules import create

RING = create("ring", learners=4)


class KilledError(Exception):
    """kill -9."""


class Turns:
    """Processes of which one runs at a time, from one store call to the next, as a test says."""

    def __init__(self) -> None:
        self.processes: dict[int, greenlet] = {}
        self.before: dict[int, str] = {}
        """The call that each stands before."""
        self.errors: list[BaseException] = []

    def start(self, number: int, work: Callable[[], None]) -> None:
        """It stands still before its first store call."""

        def run() -> None:
            try:
                work()
            except KilledError:
                pass
            except BaseException as error:
                self.errors.append(error)

        self.processes[number] = greenlet(run)
        self.step(number)

    def gate(self, call: str) -> None:
        """Called by a process before a call: wait for its turn."""
        parent = getcurrent().parent
        assert parent is not None
        if parent.switch(call) == "die":
            raise KilledError

    def step(self, number: int) -> None:
        """One store call of that process, and what follows up to the next."""
        self.before[number] = self.processes[number].switch()

    def kill(self, number: int) -> None:
        """It dies where it stands."""
        while not self.processes[number].dead:
            self.processes[number].switch("die")

    @property
    def living(self) -> list[int]:
        """Those that have not ended."""
        return sorted(number for number, process in self.processes.items() if not process.dead)


class CountingStore(LocalStore):
    """Counts calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> Any:
        """Names without an underscore are calls."""
        if not name.startswith("_") and name != "calls":
            self.calls[name] += 1
        return super().__getattribute__(name)


class Gated:
    """A store whose calls wait for their turn."""

    def __init__(self, store: LocalStore, turns: Turns) -> None:
        self._store, self._turns = store, turns

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> Any:
            self._turns.gate(" ".join(map(str, (name, *args))))
            return getattr(self._store, name)(*args)

        return call


class Crew:
    """Learners who work on `total` blocks and record what they did."""

    def __init__(
        self, learners: int, total: int, *, recorded: bool, gives: int = 0, at_once: int = 1
    ) -> None:
        """`gives`: each gives back so many of its first claims, every second one.

        `at_once`: blocks that each claims at once.
        """
        self.at_once = at_once
        self.learners, self.total, self.recorded = learners, total, recorded
        self.gives = gives
        self.folder = tempfile.TemporaryDirectory()
        self.counted: dict[int, Counted | None] = dict.fromkeys(range(learners))
        self.begin()

    def begin(self) -> None:
        """All start, with a new store, from what the records say."""
        self.turns, self.store = Turns(), LocalStore()
        self.ticks = itertools.count()
        done = (block for n, found in self.counted.items() for block in self.blocks(n, found))
        self.left = Left.after(done, self.total)
        self.alive: set[int] = set()
        self.generation = 0
        self.owner: dict[int, int] = {}
        self.asleep: dict[int, tuple[set[int], int]] = {}
        self.late: list[int] = []
        for learner in range(self.learners):
            self.start(learner)

    def restart(self) -> None:
        """All die, and start again."""
        for number in self.turns.living:
            self.turns.kill(number)
        lives = self.lives(self.store)
        self.counted = {node: lives.counted(node) for node in range(self.learners)}
        self.begin()

    def lives(self, store: Store) -> Lives:
        """As a process sees them."""
        return Lives(store, Path(self.folder.name), self.counted.__getitem__)

    def start(self, learner: int) -> None:
        """A process; the first of a learner has generation 0."""
        generation = 0
        if learner in self.owner.values():
            self.generation += 1
            generation = self.generation
        number = len(self.turns.processes)
        self.alive.add(learner)
        self.owner[number] = learner
        self.turns.start(number, lambda: self.process(number, learner, generation))

    def process(self, number: int, learner: int, generation: int) -> None:
        """Its life; one that comes while its former self goes on may have to come again."""
        try:
            self.work(number, learner, generation)
        except ExcludedError:
            if number not in self.asleep:
                self.late.append(number)

    def step(self, number: int) -> None:
        """On to its next store call, or write."""
        self.turns.step(number)
        for late in self.late:
            self.alive.discard(self.owner[late])
            self.generation += 1
            self.start(self.owner[late])
        self.late.clear()

    def work(self, number: int, learner: int, generation: int) -> None:
        """What a process does until all blocks are done."""
        store, folder = Gated(self.store, self.turns), Path(self.folder.name)
        lives = self.lives(store)
        recorder = Recorder(folder / first_file(learner), {}, RING, learner, lives=lives)
        steps, _ = recorder.take_over(recorder.left() if generation else self.counted[learner])
        recorder.enter(generation)

        def durable() -> None:
            self.turns.gate("write")  # it may stop before it writes, too
            recorder.flush()

        def used(node: int, until: int) -> list[int]:
            return self.blocks(node, lives.counted(node, until=until))

        ledger = Ledger(
            store,
            self.left,
            learner=learner,
            learners=self.learners,
            generation=generation,
            used=used if self.recorded else None,
            durable=durable,
            now=lambda: float(next(self.ticks)),
        )
        claims = Claims(ledger, lambda: self.living(number))
        for turn in itertools.count():
            blocks = claims.some(self.at_once)
            if blocks and turn % 2 == 0 and turn < 2 * self.gives:
                ledger.give_back()
                continue
            for block in blocks:
                recorder.event(Update(step=steps, read=steps, rate=0.1, block=block))
                steps += 1
                ledger.finish(block)
            if blocks:
                continue
            if claims.over():
                return

    def living(self, number: int) -> tuple[int, set[int]]:
        """Who lives as this process sees it: one that was given up hears no news."""
        if number in self.asleep:
            alive, until = self.asleep[number]
            return until, alive
        return self.generation, set(self.alive)

    def go_to(self, number: int, call: str) -> None:
        """On to where it stands before a call that begins like this."""
        while not self.turns.before[number].startswith(call):
            self.step(number)

    def kill(self, number: int) -> None:
        """A process dies, and the others notice."""
        self.turns.kill(number)
        self.alive.discard(self.owner[number])
        self.generation += 1

    def give_up(self, number: int) -> None:
        """The others take a process for dead that only stands still: it may go on at any time."""
        self.asleep[number] = set(self.alive), self.generation
        self.alive.discard(self.owner[number])
        self.generation += 1

    def blocks(self, node: int, counted: Counted | None) -> list[int]:
        """In what counts of a record."""
        if counted is None:
            return []
        file = Path(self.folder.name) / counted.file
        return reading.blocks(file, RING, node=node, length=counted.length)

    def everything(self) -> Counter[int]:
        """How often each block is in what counts of the records."""
        lives = self.lives(self.store)
        counted = {n: lives.counted(n) for n in range(self.learners)}
        return Counter(block for n, found in counted.items() for block in self.blocks(n, found))


def finish(crew: Crew) -> None:
    """All who live go on to the end."""
    for _ in range(5000):
        living = crew.turns.living
        if not living:
            break
        for number in living:
            crew.step(number)
    assert not crew.turns.living and not crew.turns.errors, crew.turns.errors
