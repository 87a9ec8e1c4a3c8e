"""Messages among the ranks of a group, of which averages are made (`averaging`)."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from hadpsgd.decentralized.core.engine import LostMemberError
from hadpsgd.decentralized.network import sockets
from hadpsgd.decentralized.network.sockets import Names
from hadpsgd.decentralized.network.waiting import Waiter, Watch


class Begun:
    """Something that was begun, to be waited for; a second wait says what the first one said.

    Args:
        work: torch's.
        waiter: waits for who asks, so that it ends with the connections.
    """

    def __init__(self, work: dist.Work | None, waiter: Waiter | Watch | None = None) -> None:
        assert work is not None  # None: this rank is not of the group
        self._work: dist.Work | None = work
        self.waiter = waiter
        self._error: LostMemberError | None = None

    @property
    def waited(self) -> bool:
        """Whether somebody has waited for it."""
        return self._work is None

    def wait(self) -> None:
        """Until it is done.

        Raises:
            LostMemberError: it never will be.
        """
        work, self._work = self._work, None
        try:
            if work is not None:
                with losses():
                    work.wait()
        except LostMemberError as error:
            self._error = error
        if self._error is not None:
            raise self._error


SILENCE_SECONDS = 1800.0

Works = list[Begun]
"""What was begun, to be waited for."""


def wait(works: Works) -> None:
    """Until all is done; on a GPU, until what this thread does next may build on it.

    Raises:
        LostMemberError: a rank is gone.
    """
    waiter = works[0].waiter if works else None
    if waiter is not None:
        waiter.run(lambda: _wait_for(works))
    else:
        _wait_for(works)


def _wait_for(works: Works) -> None:
    for work in works:
        work.wait()


@contextlib.contextmanager
def losses() -> Iterator[None]:
    """The backend says in many ways that a connection has ended."""
    try:
        yield
    except RuntimeError as error:
        said = str(error).strip().splitlines()[0]
        raise LostMemberError(said.partition("This is typically")[0].strip()) from error


class Group:
    """One process group (None: a single rank, nothing to do).

    Ranks on CPUs send each other messages. gloo's collectives pass each through a thread of their
    own and back, which takes twice as long on one host, and one after the other between hosts.
    On one host they can share memory (`near`).
    Ranks on GPUs use NCCL, or, `by_host`, do what ranks on CPUs do with copies in the hosts'
    memory. NCCL wants one communicator at a time, used by one thread, and no two ranks on a GPU.

    Args:
        group: torch's.
        size: without a group, how many ranks it is to have one day; this is the first of them.
        apart: whether its ranks are on several hosts; all ranks say the same.
        by_host: exchange copies of the tensors; all ranks say the same.
        connections: of the group, if they are looked after: waits end when one of them does, with
            `LostMemberError`. `abandon` closes them.
        vital: but then the process ends, which cannot go on without any of the others.
        seconds: of silence after which a rank near by is given up.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None,
        *,
        size: int = 1,
        apart: bool = False,
        by_host: bool = False,
        connections: Collection[tuple[int, Names]] = (),
        vital: bool = False,
        seconds: float = SILENCE_SECONDS,
    ) -> None:
        self.group = group
        kind = Watch if vital else Waiter
        self.waiter: Waiter | Watch | None = kind(connections) if connections else None
        self.apart = apart
        self.by_host = by_host
        self.size = dist.get_world_size(group) if group is not None else size
        self.rank = dist.get_rank(group) if group is not None else 0
        self.seconds = seconds
        self.bytes_sent = 0
        """What other ranks got, in memory that they share, too."""
        self.lives = 0
        """How often the group was renewed: what was agreed before holds no more."""
        self.leaving: list[Callable[[], object]] = []
        """What `abandon` does besides."""
        self._tags = 0
        self._copy: Tensor | None = None
        self._begun: deque[Begun] = deque()
        """What may be under way, oldest first."""

    def exchanged(self, tensor: Tensor) -> Tensor:
        """What is exchanged in place of a tensor: itself, or room for a copy in the host's memory.

        To copy there and back is the caller's part. A copy from or to a GPU waits for its stream.
        """
        if not self.by_host or self.size == 1:
            return tensor
        return torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)

    def abandon(self) -> None:
        """A rank is lost: let go of the group; nothing writes into buffers any more.

        Its connections end, so what was begun fails, at the others, too.
        """
        if self.waiter is not None:
            self.waiter.end()
            self.waiter = None
        while self.leaving:
            self.leaving.pop()()
        self._begun.clear()

    def renew(
        self, group: dist.ProcessGroup | None, connections: Collection[tuple[int, Names]]
    ) -> None:
        """Another group of as many ranks, after `abandon`."""
        self.group, self.waiter = group, Waiter(connections)
        self.lives += 1

    def broken(self) -> bool:
        """Whether one of the connections has ended, as far as they are looked after."""
        return self.waiter is not None and sockets.any_closed(self.waiter.connections)

    def run(self, collectives: Callable[[], None]) -> None:
        """torch's own collectives, one after the other, each waited for.

        Raises:
            LostMemberError: a rank is gone, in the middle of a message, too.
        """
        with losses():
            if self.waiter is not None:
                self.waiter.run(collectives)
            else:
                collectives()

    def all_tell(self, numbers: Sequence[int], tag: int) -> list[list[int]]:
        """As many numbers of every rank, on CPUs; blocks.

        Raises:
            LostMemberError: a rank is gone.
        """
        rows = torch.zeros(self.size, len(numbers), dtype=torch.int64)
        rows[self.rank] = torch.tensor(numbers)
        wait(self._receive(rows, tag) + self._send([rows[self.rank]] * self.size, tag))
        found: list[list[int]] = rows.tolist()
        return found

    def new_tag(self) -> int:
        """For messages that must not be taken for others; all ranks ask in one order."""
        self._tags += 1
        return self._tags

    def begin_scatter(self, rows: Tensor, buffer: Tensor, tag: int) -> tuple[Works, Works]:
        """Everybody's values of the own shard into `rows` [group, shard], and what is sent."""
        self.bytes_sent += rows[0].nbytes * (self.size - 1)
        if buffer.is_cuda:
            work = dist.all_to_all_single(rows.view(-1), buffer, group=self.group, async_op=True)
            return [self._keep(work)], []
        shards = buffer.view(self.size, -1)
        rows[self.rank].copy_(shards[self.rank])
        return self._receive(rows, tag), self._send(shards, tag)

    def begin_gather(self, out: Tensor, shard: Tensor, tag: int = 0) -> Works:
        """`gather`, to be waited for; groups of more than one only."""
        self.bytes_sent += shard.nbytes * (self.size - 1)
        if out.is_cuda:
            work = dist.all_gather_single(out, shard, group=self.group, async_op=True)
            return [self._keep(work)]
        rows = out.view(self.size, -1)
        if rows[self.rank].data_ptr() != shard.data_ptr():
            rows[self.rank].copy_(shard)
        return self._receive(rows, tag) + self._send([shard] * self.size, tag)

    def gather(self, out: Tensor, shard: Tensor) -> None:
        """All ranks' shards, one after the other, into `out`."""
        if self.size == 1:
            if out.data_ptr() != shard.data_ptr():
                out.copy_(shard)
            return
        if not self.by_host:
            wait(self.begin_gather(out, shard))
            return
        if self._copy is None or self._copy.shape != out.shape:
            self._copy = self.exchanged(out)
        own = self._copy.view(self.size, -1)[self.rank].copy_(shard)
        wait(self.begin_gather(self._copy, own))
        out.copy_(self._copy)

    def _receive(self, rows: Tensor, tag: int) -> Works:
        """From every other rank, the one before this first."""
        sources = ((self.rank - far) % self.size for far in range(1, self.size))
        with losses():
            return [
                self._keep(dist.irecv(rows[j], group=self.group, group_src=j, tag=tag))
                for j in sources
            ]

    def _send(self, rows: Tensor | Sequence[Tensor], tag: int) -> Works:
        """To every other rank, the next one first: nobody is everybody's first."""
        targets = ((self.rank + far) % self.size for far in range(1, self.size))
        with losses():
            return [
                self._keep(dist.isend(rows[j], group=self.group, group_dst=j, tag=tag))
                for j in targets
            ]

    def _keep(self, work: dist.Work | None) -> Begun:
        while self._begun and self._begun[0].waited:
            self._begun.popleft()
        self._begun.append(Begun(work, self.waiter))
        return self._begun[-1]
