"""The ranks of one host: start them, pass signals on, tell how they ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from hadpsgd.decentralized.network.variables import JOIN, RETURN
from hadpsgd.training import interrupt
from hadpsgd.training.crew import CRASHED, SETTLE_SECONDS, Crew
from hadpsgd.training.end import End
from hadpsgd.training.metrics import say
from hadpsgd.training.orders import ORDERS, pair
from hadpsgd.training.pulse import PULSE
from hadpsgd.training.rank import Rank, prepare_rank
from hadpsgd.training.succession import BAD_INPUT, JOIN_SECONDS, Succession
from hadpsgd.training.turn import TURN
from hadpsgd.training.vigil import Vigil

FORWARDED = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
"""Each asks the ranks to stop at a checkpoint."""
GRACE_SECONDS = 15.0
"""What a rank has to end of itself once another found bad input."""
_POLL_SECONDS = 0.05


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
        self.alone = alone
        self.reduces = reduces
        self.needs_all = needs_all
        self.descriptors = descriptors
        self.crew = Crew(size, Vigil(silence))
        self.succession = Succession(
            self.crew,
            self._start,
            self._refuse,
            others_elsewhere=world > len(numbers),
            replacements=replacements,
            reduces=reduces,
            waits=waits,
        )
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
            while self.crew.running():
                self._look()
                if time.monotonic() > self._kill_at:
                    self.crew.kill()
                time.sleep(_POLL_SECONDS)
            self._look()
        finally:
            self.crew.kill()
            for number, handler in before.items():
                signal.signal(number, handler)
        if self._why and not self.refused:
            say(self._why)
        self._explain()
        return (
            BAD_INPUT if self.refused else max(rank.code or 0 for rank in self.crew.ranks.values())
        )

    def _start(self, number: int, *, life: int = 0, returns: bool = False) -> None:
        place = {"RANK": number, "LOCAL_RANK": number - self.numbers.start}
        place |= {"WORLD_SIZE": self.world, "LOCAL_WORLD_SIZE": len(self.numbers)}
        env = {**os.environ, **self.env, **{name: str(value) for name, value in place.items()}}
        env |= {JOIN: str(life)} if life else {}
        self._started += 1
        signs = [self.crew.vigil.open(self._started)] if self.crew.vigil.limit else []
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
                preexec_fn=prepare_rank,  # noqa: PLW1509  no lock is taken in it
            )
        for pipe in signs:
            os.close(pipe)
        (self.crew.waiting if returns else self.crew.ranks)[number] = Rank(
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
        silent = self.crew.vigil.silent()
        for rank in (*self.crew.running(), *self.crew.waiting.values()):
            if rank.watched in silent and not rank.silent:
                rank.silent = silent[rank.watched]
                rank.process.kill()  # for good: it never wakes up again
        for rank in self.crew.running():
            if rank.turn is not None and rank.ready:
                self.succession.takes_part(rank)
        ended = [(rank, rank.process.poll()) for rank in self.crew.running()]
        # of two that ended, the one that a signal killed did not die of the other's death
        for rank, status in sorted(ended, key=lambda one: one[1] or 0):
            if status is not None and rank.code is None:
                self._ended(rank, status)
        if self.stopping:
            self.crew.dismiss(list(self.crew.waiting.values()))
        for node in sorted({self.crew.node(rank) for rank in self.crew.waiting.values()}):
            self.succession.look_at_waiting(node)
        if 0 in self.crew.ranks:
            self._follow(self.crew.ranks[0])

    def _ended(self, rank: Rank, status: int) -> None:
        known = (End.DONE, BAD_INPUT, End.REQUEUE)
        self.crew.ended(rank, status if status in known else CRASHED)
        if status == BAD_INPUT:
            self._refuse(rank)
        if status in known or self.refused or self._why:
            return
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        how = rank.silent or how
        if self.stopping:
            say(f"rank {rank.number} failed ({how}); its log: {rank.log}")
        elif self.alone and self.succession.possible(rank):
            self.succession.fall(rank, status, how)
        else:
            because = f" ({self.needs_all})" if self.needs_all else ""
            failed = f"rank {rank.number} failed ({how})"
            self._why = f"{failed}, and so the others end{because}; log: {rank.log}"
            said = rank.last_line() if status > 0 else ""  # a signal leaves no words
            self.reason = failed + (said and f": {said}")
            self._kill_at = time.monotonic() + SETTLE_SECONDS

    def _refuse(self, rank: Rank) -> None:
        """Bad input of one ends all."""
        rank.code = BAD_INPUT
        if not self.refused:
            self.refused = True
            self.reason = rank.last_line()
            self._signal(signal.SIGTERM)
            self._kill_at = time.monotonic() + GRACE_SECONDS

    def _signalled(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        # Ctrl-C and SIGTERM mean the same; the ranks know SIGTERM and SIGUSR1
        self._signal(signal.SIGTERM if number == signal.SIGINT else signal.Signals(number))

    def _signal(self, number: signal.Signals) -> None:
        self.stopping = True
        for rank in self.crew.running():
            rank.process.send_signal(number)

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
        said = {self.crew.ranks[0].last_line()} if 0 in self.crew.ranks else set()
        for rank in self.crew.ranks.values():
            line = rank.last_line() if rank.code in failed else ""
            if line and line not in said:
                said.add(line)
                say(f"rank {rank.number}: {line}")
