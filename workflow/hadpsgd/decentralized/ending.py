"""The end of a library's training: the mean of the learners that are there."""

from __future__ import annotations

from collections.abc import Sequence

import torch.distributed as dist

from hadpsgd.decentralized.agreement import LEAVE_SECONDS
from hadpsgd.decentralized.core.buffers import ALIGN
from hadpsgd.decentralized.network.averaging import Averaging
from hadpsgd.decentralized.network.collectives import Group
from hadpsgd.decentralized.network.rendezvous import Meeting, process_group, wait_for_keys
from hadpsgd.decentralized.strategies.mixing_engine import DecentralizedEngine


def average(
    alive: Sequence[int], engine: DecentralizedEngine, meeting: Meeting, *, by_host: bool
) -> None:
    """Give all members of the super-learners that lived (`alive`) the mean of their weights.

    `by_host`: see `Group`.

    Raises:
        UserError: one of them does not come.
    """
    ranks, weights = _ranks(alive, meeting), engine.weights
    if len(ranks) > 1:
        meeting.wait_for_finish(ranks)
        rank, count = ranks.index(meeting.place.rank), len(ranks)
        on_gpu = weights.is_cuda
        process_group("finish", meeting, rank=rank, size=count, by_host=by_host or not on_gpu)
        elements = engine.learner.flat.elements
        buffer = weights.new_zeros(-(-elements // (count * ALIGN)) * count * ALIGN)
        buffer[:elements] = weights
        Averaging(Group(dist.group.WORLD, by_host=by_host), buffer).run()
        weights = buffer[:elements]
        dist.barrier()
        dist.destroy_process_group()
    engine.load_weights(weights)


def leave(alive: Sequence[int], meeting: Meeting) -> None:
    """Who has the store goes last."""
    if meeting.store is None:
        return
    store = meeting.prefixed("left")
    store.set(str(meeting.place.rank), "")
    if meeting.hosts_store:
        wait_for_keys(store, [str(rank) for rank in _ranks(alive, meeting)], LEAVE_SECONDS)


def _ranks(alive: Sequence[int], meeting: Meeting) -> list[int]:
    size = meeting.place.size
    return [node * size + member for node in alive for member in range(size)]
