"""The ranks of one host: start them, pass signals on, tell how they ended."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from hadpsgd.decentralized.network.rendezvous import JOIN, RETURN
from hadpsgd.training import interrupt
from hadpsgd.training.loop import End
from hadpsgd.training.metrics import say
from hadpsgd.training.orders import ORDERS, Order, give, pair
from hadpsgd.training.pulse import PULSE
from hadpsgd.training.turn import GO, READY, TURN
from hadpsgd.training.vigil import Vigil

BAD_INPUT = 2
CRASHED = 1
FORWARDED = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
"""Each asks the ranks to stop at a checkpoint."""
GRACE_SECONDS = 15.0
"""What a rank has to end of itself once another found bad input."""
SETTLE_SECONDS = 2.0
"""Who found bad input may end a little later than those who lost it, and is what counts."""
JOIN_SECONDS = 20.0
"""A newcomer that has lived so long is taken to have joined the others."""
ALIKE = 3
"""Who dies the same way so often, without having joined the others, is not started again."""
_POLL_SECONDS = 0.05
_PR_SET_PDEATHSIG = 1


@dataclass(kw_only=True)
class Rank:
    """One process and its log, to which every attempt appends."""

    number: int
    process: subprocess.Popen[bytes]
    log: Path
    begin: int
    """Where this attempt's part of the log begins."""
    joins_until: float
    """Until then it is not counted on."""
    watched: int
    """Its number in the vigil."""
    turn: socket.socket | None = None
    """Of one that comes to another: it says there that it is ready, then that it takes part."""
    orders: socket.socket | None = None
    """To a member of a super-learner, which may take the first one's place."""
    code: int | None = None
    silent: str = ""
    """Why it was ended as one that hangs."""

    @property
    def ready(self) -> bool:
        """Whether one that waits for its turn can take it; that has its turn, takes part."""
        assert self.turn is not None
        try:
            return self.turn.recv(len(READY), socket.MSG_PEEK) == READY
        except (BlockingIOError, ConnectionResetError):
            return False

    def hang_up(self) -> None:
        """There is nothing more to be said."""
        if self.turn is not None:
            self.turn.close()
            self.turn = None

    def closed(self) -> None:
        """It has ended."""
        self.hang_up()
        if self.orders is not None:
            self.orders.close()
            self.orders = None

    def last_line(self) -> str:
        """Of what this attempt wrote."""
        with self.log.open("rb") as stream:
            stream.seek(self.begin)
            lines = stream.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


class Ranks:
    """The ranks of one host.

    Args:
        command: what each runs.
        env: what they find each other by.
        numbers: which ranks.
        world: how many there are on all hosts.
        logs: folder of `rank-<r>.log`.
        replacements: how many that die are started again by themselves, to join the others.
        alone: let the others go on without one that died; if not, all end.
        needs_all: why all end, where the strategy cannot go on without one.
        size: ranks of a super-learner. It ends as a whole when one of them dies, and joins so.
        reduces: but those that live go on until new ones come; if the first one died, the next one
            takes its place.
        waits: they do nothing but wait for them.
        descriptors: open files that they keep open, too.
        silence: seconds after which one that gives no sign of life is ended (`Vigil`; 0: never).
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        numbers: range,
        world: int,
        logs: Path,
        *,
        replacements: int = 0,
        alone: bool = False,
        size: int = 1,
        reduces: bool = False,
        waits: bool = False,
        needs_all: str = "",
        descriptors: Sequence[int] = (),
        silence: float = 0.0,
    ) -> None:
        self.command = command
        self.env = env
        self.numbers = numbers
        self.world = world
        self.logs = logs
        self.replacements = replacements
        self.alone = alone
        self.size = size
        self.reduces = reduces
        self.waits = waits
        self.needs_all = needs_all
        self.descriptors = descriptors
        self.vigil = Vigil(silence)
        self.ranks: dict[int, Rank] = {}
        self.waiting: dict[int, Rank] = {}
        """Those that are to come to the first rank of their super-learner, which lacks others."""
        self._started = 0
        self.stopping = False
        """Whether a signal, or bad input of one, asked them to stop."""
        self.refused = False
        """Whether one found bad input."""
        self.reason = ""
        """What the first one to fail said, or how it died."""
        self._why = ""
        """Why all end, where one that died takes the others with it."""
        self._kill_at = float("inf")
        self._told = 0
        self._statuses: dict[int, list[int]] = {}
        self._lives: dict[int, int] = {}
        """How often each was started again as a newcomer."""

    def run(self) -> int:
        """Start them, wait for the end of all: 2 (bad input), or the largest exit status.

        0 done, 1 one died, 75 stopped at a checkpoint.
        """
        before = {number: signal.signal(number, self._signalled) for number in FORWARDED}
        try:
            for number in self.numbers:
                self._start(number)
            if self.stopping or interrupt.asked():  # before all of them were there to hear of it
                self._signal(signal.SIGTERM)
            while self._running():
                self._look()
                if time.monotonic() > self._kill_at:
                    self._kill()
                time.sleep(_POLL_SECONDS)
            self._look()
        finally:
            self._kill()
            for number, handler in before.items():
                signal.signal(number, handler)
        if self._why and not self.refused:
            say(self._why)
        self._explain()
        return BAD_INPUT if self.refused else max(rank.code or 0 for rank in self.ranks.values())

    def _running(self) -> list[Rank]:
        return [rank for rank in self.ranks.values() if rank.code is None]

    def _start(self, number: int, *, life: int = 0, returns: bool = False) -> None:
        place = {"RANK": number, "LOCAL_RANK": number - self.numbers.start}
        place |= {"WORLD_SIZE": self.world, "LOCAL_WORLD_SIZE": len(self.numbers)}
        env = {**os.environ, **self.env, **{name: str(value) for name, value in place.items()}}
        env |= {JOIN: str(life)} if life else {}
        self._started += 1
        signs = [self.vigil.open(self._started)] if self.vigil.limit else []
        env |= {PULSE: str(signs[0])} if signs else {}
        ours, theirs = socket.socketpair() if returns else (None, None)
        if ours is not None and theirs is not None:
            ours.setblocking(False)
            env |= {RETURN: "yes", TURN: str(theirs.fileno())}
            signs.append(theirs.detach())
        orders = None
        if self.reduces:
            orders, theirs = pair()
            env |= {ORDERS: str(theirs.fileno())}
            signs.append(theirs.detach())
        log = self.logs / f"rank-{number}.log"
        with log.open("ab") as stream:
            now = time.strftime("%Y-%m-%d %H:%M:%S")
            stream.write(f"--- rank {number} starts, {now}, {socket.gethostname()}\n".encode())
            stream.flush()
            begin = stream.tell()
            process = subprocess.Popen(
                self.command,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                pass_fds=[*self.descriptors, *signs],
                start_new_session=True,  # Ctrl-C reaches us alone, and we pass it on once
                preexec_fn=_prepare_rank(),  # noqa: PLW1509  no lock is taken in it
            )
        for pipe in signs:
            os.close(pipe)
        (self.waiting if returns else self.ranks)[number] = Rank(
            number=number,
            process=process,
            log=log,
            begin=begin,
            joins_until=time.monotonic() + JOIN_SECONDS if life else 0.0,
            watched=self._started,
            turn=ours,
            orders=orders,
        )

    def _look(self) -> None:
        silent = self.vigil.silent()
        for rank in (*self._running(), *self.waiting.values()):
            if rank.watched in silent and not rank.silent:
                rank.silent = silent[rank.watched]
                rank.process.kill()  # for good: it never wakes up again
        for rank in self._running():
            if rank.turn is not None and rank.ready:
                self._takes_part(rank)
        ended = [(rank, rank.process.poll()) for rank in self._running()]
        # of two that ended, the one that a signal killed did not die of the other's death
        for rank, status in sorted(ended, key=lambda one: one[1] or 0):
            if status is not None and rank.code is None:
                self._ended(rank, status)
        for node in sorted({number // self.size for number in self.waiting}):
            self._look_at_waiting(node)
        if 0 in self.ranks:
            self._follow(self.ranks[0])

    def _ended(self, rank: Rank, status: int) -> None:
        known = (End.DONE, BAD_INPUT, End.REQUEUE)
        rank.code = status if status in known else CRASHED
        rank.closed()
        self.vigil.close(rank.watched)
        if status == BAD_INPUT:
            self._refuse(rank)
        if status in known or self.refused or self._why:
            return
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        how = rank.silent or how
        if self.stopping:
            say(f"rank {rank.number} died ({how}); its log: {rank.log}")
        elif self.alone and (self._reduces(rank) or self._others_take_part(rank)):
            self._fall(rank, status, how)
        else:
            because = f" ({self.needs_all})" if self.needs_all else ""
            self._why = (
                f"rank {rank.number} died ({how}), and so the others end{because}; log: {rank.log}"
            )
            said = rank.last_line() if status > 0 else ""  # a signal leaves no words
            self.reason = f"rank {rank.number} died ({how})" + (said and f": {said}")
            self._kill_at = time.monotonic() + SETTLE_SECONDS

    def _fall(self, rank: Rank, status: int, how: str) -> None:
        """The others go on without it, and without its super-learner; newcomers join, if wanted."""
        if rank.number in self.waiting:  # it died with another one, and is replaced already
            return
        died, it, heir = f"rank {rank.number} died ({how})", "it", self._heir(rank)
        colleagues, node = self._colleagues(rank), rank.number // self.size
        if self._reduces(rank):
            there = [one for one in self._numbers(node) if self._lives_on(one)]
            others = f"rank {', '.join(map(str, there))}"
            how = "wait for new ones" if len(there) > 1 else "waits for new ones"
            how = how if self.waits else "go on" if len(there) > 1 else "alone"
            say(f"{died}: the others go on, of its super-learner {others} {how}")
            self._dismiss(self._waiting_of(node))
            self._prepare(node, give_up=self._always_alike(rank, status))
            return
        self._dismiss(self._waiting_of(node))
        if heir is not None:
            alike = self._always_alike(rank, status)
            say(f"{died}: the others go on, rank {heir.number} takes its place")
            self._put_in_place(heir, of=rank)
            self._prepare(node, give_up=alike)
            return
        if colleagues:
            it = "the super-learner"
            died += f", and super-learner {node} with it"
        alike = self._always_alike(rank, status)
        for colleague in colleagues:
            colleague.closed()  # no order comes any more
        for colleague in colleagues:
            self._end(colleague)
        if self.refused:  # one of them found bad input, of which this one died
            return
        if alike:
            say(f"{died} {ALIKE} times: the others go on without {it}")
        elif self.replacements:
            self.replacements -= 1
            say(f"{died}: the others go on, {it} joins again")
            for number in sorted(one.number for one in (rank, *colleagues)):
                self._lives[number] = self._lives.get(number, 0) + 1
                self._start(number, life=self._lives[number])
        else:
            say(f"{died}: the others go on without {it}")

    def _reduces(self, dead: Rank) -> bool:
        """Whether its super-learner goes on without it: its first rank lives."""
        first = self.ranks.get(dead.number // self.size * self.size)
        if first is None or first is dead or not self.reduces:
            return False
        if self.waits and not self.replacements:
            return False
        return self._lives_on(first.number) and time.monotonic() >= first.joins_until

    def _heir(self, dead: Rank) -> Rank | None:
        """Who takes the place of a first rank that died: the next one that lives, if none of them
        is between coming and taking part.
        """
        node, colleagues = dead.number // self.size, self._colleagues(dead)
        if not self.reduces or dead.number != node * self.size or dead.joins_until == float("inf"):
            return None
        if self.waits and not self.replacements:
            return None
        there = [one for one in colleagues if self._lives_on(one.number)]
        if any(time.monotonic() < one.joins_until for one in there):
            return None
        return min(there, key=lambda one: one.number, default=None)

    def _put_in_place(self, heir: Rank, *, of: Rank) -> None:
        """It has the first one's number and log from now on; that one has its."""
        node, number = of.number // self.size, heir.number
        life = 1 + self._lives.get(of.number, 0)
        self._lives |= dict.fromkeys(self._numbers(node), life)
        self.ranks[of.number], self.ranks[number] = heir, of
        heir.number, of.number = of.number, number
        heir.log, heir.begin = of.log, of.log.stat().st_size
        for rank in (*self._colleagues(heir), heir):  # before it can be taken for the first one
            if rank.orders is not None:
                log = str(rank.log) if rank is heir else ""
                give(rank.orders, Order(rank=rank.number, life=life, log=log))

    def _lives_on(self, number: int) -> bool:
        """Whether a rank's process runs."""
        return number in self.ranks and self.ranks[number].process.poll() is None

    def _numbers(self, node: int) -> range:
        """Ranks of a super-learner."""
        return range(node * self.size, (node + 1) * self.size)

    def _prepare(self, node: int, *, give_up: bool) -> None:
        """Start those that are to come to a super-learner's first rank, if that is wanted."""
        numbers = self._numbers(node)
        if self.replacements and not give_up:
            self.replacements -= 1
            life = 1 + self._lives.get(numbers[0], 0)
            self._lives |= dict.fromkeys(numbers, life)
            for number in numbers[1:]:
                if not self._lives_on(number):
                    self._start(number, life=life, returns=True)
        elif self.waits:
            first = self.ranks[numbers[0]]
            first.silent = "nobody comes for whom it waits"
            first.process.kill()

    def _waiting_of(self, node: int) -> list[Rank]:
        """Those that are to come to the first rank of a super-learner."""
        return [rank for n, rank in self.waiting.items() if n // self.size == node]

    def _look_at_waiting(self, node: int) -> None:
        """Let them take their turn when all are ready; if one has died, others get ready."""
        waiting = self._waiting_of(node)
        if self.stopping:
            self._dismiss(waiting)
            return
        for rank in waiting:
            status = rank.process.poll()
            if status is None:
                continue
            self._dismiss(waiting)
            if status == BAD_INPUT:
                self._refuse(rank)
            else:
                self._prepare(node, give_up=self._always_alike(rank, status))
            return
        if all(rank.ready for rank in waiting):
            numbers = ", ".join(str(rank.number) for rank in waiting)
            say(f"super-learner {node}: new rank {numbers} comes to rank {node * self.size}")
            self._take_places(node)

    def _take_places(self, node: int) -> None:
        """If one of them dies before all take part, the super-learner joins as a whole."""
        first = self.ranks[node * self.size]
        first.joins_until = float("inf")
        for rank in self._waiting_of(node):
            self.ranks[rank.number] = self.waiting.pop(rank.number)
            rank.joins_until = first.joins_until
            assert rank.turn is not None
            rank.turn.recv(len(READY))
            with contextlib.suppress(BrokenPipeError):  # it has ended, which is seen next
                rank.turn.sendall(GO)

    def _takes_part(self, rank: Rank) -> None:
        """It counts from now on, as does the one to which it came, if it is the last to come."""
        rank.hang_up()
        rank.joins_until = 0.0
        first = self.ranks[rank.number // self.size * self.size]
        if all(colleague.turn is None for colleague in self._colleagues(first)):
            first.joins_until = 0.0

    def _dismiss(self, waiting: Sequence[Rank]) -> None:
        """They are of no use any more."""
        for rank in waiting:
            rank.process.kill()
            rank.process.wait()
            rank.code = CRASHED
            self.vigil.close(rank.watched)
            del self.waiting[rank.number]
            rank.closed()

    def _colleagues(self, rank: Rank) -> list[Rank]:
        """The other ranks of its super-learner."""
        group = rank.number // self.size
        return [r for n, r in self.ranks.items() if n // self.size == group and r is not rank]

    def _end(self, rank: Rank) -> None:
        """End a rank that cannot go on; it may be about to say why."""
        if rank.code is not None:
            return
        try:
            status = rank.process.wait(SETTLE_SECONDS)
        except subprocess.TimeoutExpired:
            rank.process.kill()
            status = rank.process.wait()
        rank.code = CRASHED
        rank.closed()
        self.vigil.close(rank.watched)
        if status == BAD_INPUT:
            self._refuse(rank)

    def _refuse(self, rank: Rank) -> None:
        """Bad input of one ends all."""
        rank.code = BAD_INPUT
        if not self.refused:
            self.refused = True
            self.reason = rank.last_line()
            self._signal(signal.SIGTERM)
            self._kill_at = time.monotonic() + GRACE_SECONDS

    def _always_alike(self, rank: Rank, status: int) -> bool:
        """Whether another start would end as the last ones did; kill -9 comes from outside."""
        statuses = self._statuses.setdefault(rank.number, [])
        if time.monotonic() > rank.joins_until:
            statuses.clear()
        statuses.append(status)
        return statuses[-ALIKE:] == [status] * ALIKE and status != -signal.SIGKILL

    def _others_take_part(self, without: Rank) -> bool:
        """Whether there is somebody to go on with; other hosts are trusted to have someone."""
        now, gone = time.monotonic(), [without, *self._colleagues(without)]
        others = (rank for rank in self._running() if rank not in gone)
        here = any(now > rank.joins_until for rank in others)
        return here or self.world > len(self.numbers)

    def _signalled(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        # Ctrl-C and SIGTERM mean the same; the ranks know SIGTERM and SIGUSR1
        self._signal(signal.SIGTERM if number == signal.SIGINT else signal.Signals(number))

    def _signal(self, number: signal.Signals) -> None:
        self.stopping = True
        for rank in self._running():
            rank.process.send_signal(number)

    def _kill(self) -> None:
        self._dismiss(list(self.waiting.values()))
        for rank in self._running():
            rank.process.kill()
            rank.process.wait()
            rank.code = CRASHED
            rank.closed()
            self.vigil.close(rank.watched)

    def _follow(self, rank: Rank) -> None:
        """What rank 0 says is said here, too."""
        with rank.log.open("rb") as stream:
            stream.seek(max(self._told, rank.begin))
            text = stream.read()
            self._told = stream.tell()
        if text:
            sys.stderr.write(text.decode(errors="replace"))
            sys.stderr.flush()

    def _explain(self) -> None:
        """The last words of ranks that failed, each once; of those with bad input, if there are."""
        failed = (BAD_INPUT,) if self.refused else (CRASHED,)
        said = {self.ranks[0].last_line()} if 0 in self.ranks else set()
        for rank in self.ranks.values():
            line = rank.last_line() if rank.code in failed else ""
            if line and line not in said:
                said.add(line)
                say(f"rank {rank.number}: {line}")


def _prepare_rank() -> Callable[[], None]:
    """For Popen's preexec_fn: it ends with its parent, and signals wait until it can hear them."""
    end = end_with_parent()

    def prepare() -> None:
        interrupt.hold()
        if end is not None:
            end()

    return prepare


def end_with_parent() -> Callable[[], None] | None:
    """For Popen's preexec_fn: SIGTERM when the parent dies, kill -9 included (Linux)."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return ask
