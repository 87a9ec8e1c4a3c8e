"""Every block is done once, whoever dies when: the ledger of claims, one store call at a time."""

from __future__ import annotations

import itertools
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from hadpsgd.decentralized.core.engine import Counted, ExcludedError
from hadpsgd.decentralized.core.events import Update
from hadpsgd.decentralized.core.left import Left
from hadpsgd.decentralized.core.stores import LocalStore, Store
from hadpsgd.decentralized.core.supply import Supply
from hadpsgd.decentralized.core.work import Ledger
from hadpsgd.decentralized.record import reading
from hadpsgd.decentralized.record.lives import Lives, first_file
from hadpsgd.decentralized.record.record import Recorder
from hadpsgd.decentralized.topology.schedules import create

RING = create("ring", learners=4)


class KilledError(Exception):
    """kill -9."""


class Turns:
    """Threads of which one runs at a time, from one store call to the next, as a test says."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.waiting: set[int] = set()
        self.doomed: set[int] = set()
        self.turn: int | None = None
        self.threads: dict[int, threading.Thread] = {}
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
            with self.changed:
                self.turn = None
                self.changed.notify_all()

        self.threads[number] = threading.Thread(target=run, daemon=True)
        self.turn = number
        self.threads[number].start()
        self._settle(number)

    def gate(self, number: int) -> None:
        """Called by a thread: wait for its turn."""
        with self.changed:
            self.waiting.add(number)
            self.turn = None
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.turn == number)
            self.waiting.discard(number)
            if number in self.doomed:
                raise KilledError

    def step(self, number: int) -> None:
        """One store call of that thread, and what follows up to the next."""
        with self.changed:
            self.turn = number
            self.changed.notify_all()
        self._settle(number)

    def kill(self, number: int) -> None:
        """It dies where it stands."""
        self.doomed.add(number)
        self.step(number)

    @property
    def living(self) -> list[int]:
        """Those that have not ended."""
        return sorted(self.waiting)

    def _settle(self, number: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.turn is None, 120), f"{number} hangs"
        if number not in self.waiting:
            self.threads[number].join()


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

    def __init__(self, store: LocalStore, turns: Turns, number: int) -> None:
        self._store, self._turns, self._number = store, turns, number

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> Any:
            self._turns.gate(self._number)
            return getattr(self._store, name)(*args)

        return call


class Crew:
    """Learners who work on `total` blocks and record what they did."""

    def __init__(self, learners: int, total: int, *, recorded: bool, gives: int = 0) -> None:
        """`gives`: each gives back so many of its first claims, every second one."""
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
        number = len(self.turns.threads)
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
        store, folder = Gated(self.store, self.turns, number), Path(self.folder.name)
        lives = self.lives(store)
        recorder = Recorder(folder / first_file(learner), {}, RING, learner, lives=lives)
        steps, _ = recorder.take_over(recorder.left() if generation else self.counted[learner])
        recorder.enter(generation)

        def durable() -> None:
            self.turns.gate(number)  # it may stop before it writes, too
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
        for turn in itertools.count():
            block = ledger.claim()
            if block is not None and turn % 2 == 0 and turn < 2 * self.gives:
                ledger.give_back()
                continue
            if block is not None:
                recorder.event(Update(step=steps, read=steps, rate=0.1, block=block))
                steps += 1
                ledger.finish(block)
                continue
            ledger.tell()
            alive, until = self.asleep.get(number, (self.alive, self.generation))
            for other in set(range(self.learners)) - alive:
                ledger.bury(other, until=until)
            if ledger.look_for_end():
                return

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


@settings(max_examples=100, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(data=st.data())
def test_every_block_once_whatever_happens(data: st.DataObject) -> None:
    """Any interleaving of store calls and writes; between any two of them deaths, newcomers,
    restarts, and processes that are given up and go on.
    """
    crew = Crew(
        data.draw(st.integers(1, 4), "learners"),
        data.draw(st.integers(1, 14), "blocks"),
        recorded=True,
        gives=data.draw(st.integers(0, 3), "given back"),
    )
    for _ in range(data.draw(st.integers(0, 120), "moves")):
        living = crew.turns.living
        if not living:
            break
        moves = ["kill", "replace", "give up", "replace asleep", "restart"]
        move = data.draw(st.sampled_from(["step"] * 20 + moves))
        who = data.draw(st.sampled_from(living))
        if move == "step":
            crew.step(who)
        elif move == "restart":
            crew.restart()
        elif who in crew.asleep:
            if move == "kill":
                crew.turns.kill(who)
        elif len(crew.alive) > 1 or "replace" in move:
            (crew.kill if move in ("kill", "replace") else crew.give_up)(who)
            if "replace" in move:
                crew.start(crew.owner[who])
    finish(crew)
    assert crew.everything() == Counter(range(crew.total))


def finish(crew: Crew) -> None:
    """All who live go on to the end."""
    for _ in range(5000):
        living = crew.turns.living
        if not living:
            break
        for number in living:
            crew.step(number)
    assert not crew.turns.living and not crew.turns.errors, crew.turns.errors


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("calls", range(1, 26))
def test_a_death_after_any_store_call(calls: int, recorded: bool) -> None:
    """Of two learners one dies after so many calls and nobody comes: the other does it all.

    Without a record its last words count; then what it had done and not told is done again, so
    only that nothing is lost can be asked.
    """
    crew = Crew(2, 9, recorded=recorded)
    for _ in range(calls):
        crew.turns.step(0)
    crew.kill(0)
    finish(crew)
    if recorded:
        assert crew.everything() == Counter(range(9))
    else:
        assert set(crew.everything()) == set(range(9))


@pytest.mark.parametrize("replaced", [True, False])
@pytest.mark.parametrize("later", [0, 8, 500])
@pytest.mark.parametrize("calls", range(4, 34))
def test_one_that_is_given_up_and_goes_on(calls: int, later: int, *, replaced: bool) -> None:
    """It stands still before a call, or a write; it wakes up when the others have got so far."""
    crew = Crew(2, 9, recorded=True)
    for _ in range(calls):
        crew.turns.step(0)
    crew.give_up(0)
    if replaced:
        crew.start(0)
    for _ in range(later):
        for number in set(crew.turns.living) - {0}:
            crew.step(number)
    finish(crew)
    assert crew.everything() == Counter(range(9))


def test_a_block_that_is_offered_twice_is_done_once() -> None:
    """Two who bury the dead both offer what was lost, and one learner takes both offers."""
    store = LocalStore()
    dead, first, second = (
        Ledger(store, Left(total=3), learner=n, learners=3, generation=0) for n in range(3)
    )
    for ledger in (dead, first, second):
        ledger.begin()
    store.add("next", 1)  # the dead one took a number, and died before it told of it
    said = store.get("state/0").decode()
    first.bury(0, until=1)
    store.set("state/0", said)  # as if both were at it at once
    second.bury(0, until=1)
    assert store.add("offers", 0) == 2
    done = []
    while (block := first.claim()) is not None:
        done.append(block)
        first.finish(block)
    assert sorted(done) == [0, 1, 2]


def test_what_is_given_back_is_anybodys() -> None:
    """Also its former owner's, but one's alone."""
    store = LocalStore()
    first, second = (Ledger(store, Left(total=3), learner=n, learners=2) for n in range(2))
    assert [first.claim(), first.claim(), second.claim()] == [0, 1, 2]
    first.give_back()
    assert second.claim() == 0
    second.give_back()
    claimed = [ledger.claim() for _ in range(2) for ledger in (first, second)]
    assert sorted(block for block in claimed if block is not None) == [0, 1, 2]


def test_a_slow_learner_asks_for_the_end_only_near_it() -> None:
    """Each call is a round trip over its link: 3 a claim, one more now and then."""
    moment, store = 0.0, CountingStore()
    ledger = Ledger(store, Left(total=1000), learner=0, learners=8, now=lambda: moment)
    ledger.begin()
    needed = []
    for _ in range(16):
        store.calls.clear()
        block = ledger.claim()
        assert block is not None
        ledger.finish(block)
        needed.append(store.calls.total())
        moment += 5.0
        store.add("next", 39)  # the others': 8 a second in all
    assert needed[3:7] == [3, 3, 3, 3] and sum(needed) <= 16 * 3 + 4
    while ledger.claim() is not None:
        moment += 5.0
        store.add("next", 39)
    assert store.add("next", 0) < 1000, "it left the last ones to the others"


def test_old_claims_are_removed() -> None:
    store = LocalStore()
    ledgers = [Ledger(store, Left(total=1000), learner=n, learners=2) for n in range(2)]
    for ledger in ledgers:
        ledger.begin()
    for _ in range(500):
        for ledger in ledgers:
            block = ledger.claim()
            assert block is not None
            ledger.finish(block)
    claims = sum(key.startswith("claim/") for key in store._values)
    assert claims < 200


class Clock:
    """Stands still unless it is told otherwise."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_slow_learner_leaves_the_last_blocks_to_the_others() -> None:
    """Learner 1 is 40 times slower than learner 0: it holds the end up by no block."""
    store, clock = LocalStore(), Clock()
    quick, slow = (
        Ledger(store, Left(total=200), learner=n, learners=2, now=clock) for n in range(2)
    )
    did: list[int] = []
    moments = []
    at_work = slow.claim()
    for second in range(1, 400):
        clock.now = second
        block = quick.claim()
        if block is not None:
            quick.finish(block)
        if second % 40 == 0 and at_work is not None:
            did.append(at_work)
            moments.append(second)
            slow.finish(at_work)
            at_work = slow.claim()
        for ledger in (quick, slow):
            ledger.tell()
        if quick.look_for_end():
            break
    assert moments == [40, 80, 120, 160]
    assert second == 196


def test_a_slow_learner_does_the_last_blocks_if_nobody_else_does() -> None:
    store, clock = LocalStore(), Clock()
    quick, slow = (
        Ledger(store, Left(total=20), learner=n, learners=2, now=clock) for n in range(2)
    )
    for second in (0, 10):
        clock.now = second
        block = slow.claim()
        assert block is not None
        slow.finish(block)
        for _ in range(8):
            block = quick.claim()
            assert block is not None
            quick.finish(block)
    assert slow.claim() is None
    clock.now = 15
    assert slow.claim() is None
    clock.now = 20
    assert slow.claim() == 18
    slow.finish(18)
    clock.now = 40
    while (block := slow.claim()) is None:
        clock.now += 1
    assert block == 19
    slow.finish(19)
    slow.tell()
    quick.tell()
    assert slow.look_for_end()


def test_equal_learners_leave_nothing() -> None:
    store, clock = LocalStore(), Clock()
    ledgers = [Ledger(store, Left(total=42), learner=n, learners=4, now=clock) for n in range(4)]
    did = 0
    for second in range(11):
        clock.now = second
        for ledger in ledgers:
            block = ledger.claim()
            assert (block is None) == (did == 42)
            if block is not None:
                ledger.finish(block)
                did += 1
    assert did == 42


def test_what_is_left_has_holes() -> None:
    left = Left.after([0, 1, 4, 6], 9)
    assert [left.block(index) for index in range(len(left))] == [2, 3, 5, 7, 8]
    assert [block for block in range(9) if block in left] == [2, 3, 5, 7, 8]
    assert Left.from_json(left.to_json()) == left


@pytest.mark.parametrize("make", [LocalStore, dist.HashStore])
def test_threads_share_the_blocks(make: Callable[[], Any]) -> None:
    """Supplies in threads, on torch's own store, too."""
    store, learners, total = make(), 4, 200
    did: list[list[int]] = [[] for _ in range(learners)]

    def work(learner: int) -> None:
        ledger = Ledger(store, Left(total=total), learner=learner, learners=learners)
        with Supply(ledger, lambda block: block * 2) as supply:
            while not supply.over:
                piece = supply.take()
                if piece is not None:
                    block, content = piece
                    assert content == 2 * block
                    did[learner].append(block)
                    supply.finish(block)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(learners)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert Counter(block for blocks in did for block in blocks) == Counter(range(total))


def test_an_error_of_the_thread_is_the_callers() -> None:
    def read(block: int) -> int:
        raise OSError(f"block {block} cannot be read")

    supply = Supply(Ledger(LocalStore(), Left(total=3), learner=0, learners=1), read)
    with supply, pytest.raises(OSError, match="block 0 cannot be read"):
        supply.take()
