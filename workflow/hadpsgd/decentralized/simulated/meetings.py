"""Collectives among learners of one process, in virtual time: all come, then all go on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hadpsgd.decentralized.simulated.transport import Network


@dataclass
class _Meeting:
    came: dict[int, Any] = field(default_factory=dict)
    over: bool = False
    result: Any = None
    left: int = 0


class Assembly:
    """Allreduces among learners of one process: nobody leaves before all have come.

    Args:
        network: its links say how long a ring allreduce of a model takes.
        members: who takes part.
    """

    def __init__(self, network: Network, members: Sequence[int]) -> None:
        self.network = network
        self.members = tuple(members)
        self.size = len(self.members)
        self.bytes_sent = 0.0
        """By each member."""
        self._changed = network.clock.condition("the other learners of an allreduce")
        self._meetings: defaultdict[int, _Meeting] = defaultdict(_Meeting)
        self._visits: defaultdict[int, int] = defaultdict(int)

    def meet(
        self,
        member: int,
        brings: Any,
        combine: Callable[[list[Any]], Any],
        left: Callable[[float], float] = lambda seconds: seconds,
    ) -> Any:
        """Meeting number n of `member`: combine(what all brought, in the order of members).

        It is combined once, at the end, and given to all. `left`: of so many seconds that it takes,
        those that are left now that all have come; for one that had begun before.
        """
        number = self._visits[member]
        self._visits[member] += 1
        meeting = self._meetings[number]
        meeting.came[member] = brings
        if len(meeting.came) == self.size:
            network = self.network
            seconds = network.links.times.allreduce(self.members, network.model_bytes)
            network.clock.after(left(seconds), partial(self._end, meeting, combine))
        self._changed.wait_for(lambda: meeting.over)
        meeting.left += 1
        if meeting.left == self.size:
            del self._meetings[number]
        return meeting.result

    def _end(self, meeting: _Meeting, combine: Callable[[list[Any]], Any]) -> None:
        self.network.fence()
        meeting.result = combine([meeting.came[member] for member in self.members])
        self.network.fence()
        meeting.over = True
        self.bytes_sent += 2 * self.network.model_bytes * (self.size - 1) / self.size
        self._changed.notify_all()


class SimulatedAveraging:
    """Stands in for `collectives.Averaging`: one member's buffer becomes the mean of all."""

    def __init__(self, assembly: Assembly, member: int, buffer: Tensor) -> None:
        self._assembly = assembly
        self._member = member
        self._buffer = buffer

    def run(self) -> None:
        """The mean, summed in the order of the members, so that all get the same bits."""
        self._buffer.copy_(read_here(self._assembly.meet(self._member, self._buffer, _mean)))


def read_here(result: Tensor) -> Tensor:
    """What a meeting gave to all; on a GPU its memory is kept until this task's stream has read it.

    It belongs to the stream of whichever task combined it, and the last one lets go of it.
    """
    if result.is_cuda:
        result.record_stream(torch.cuda.current_stream(result.device))
    return result


def _mean(buffers: list[Tensor]) -> Tensor:
    total = buffers[0].clone()
    for buffer in buffers[1:]:
        total += buffer
    return total.div_(len(buffers))
