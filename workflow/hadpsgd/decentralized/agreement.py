"""What all learners must have in common before they begin."""

from __future__ import annotations

import hashlib

import torch
from torch import nn

from hadpsgd.decentralized.network import rendezvous
from hadpsgd.decentralized.network.rendezvous import Meeting
from hadpsgd.errors import UserError

LEAVE_SECONDS = 60.0
"""How long the process that has the store waits for the others to leave."""


class MixedCheckpointError(UserError):
    """Parts of different checkpoints: an older one may be whole. All ranks are told so at once."""


def size_of(name: str, *, world: int, super_learner: int) -> int:
    """Learners that share each gradient.

    Raises:
        UserError: the strategy has no super-learners, or not of that size.
    """
    if name in ("ssgd", "single"):
        return world
    if name != "hadpsgd":
        if super_learner != 1:
            raise UserError(f"strategy {name} has no super-learners", fix="Choose hadpsgd")
        return 1
    if super_learner < 1 or world % super_learner:
        raise UserError(f"{world} processes cannot form super-learners of {super_learner}")
    if world > 1 and world == super_learner:
        what = f"{world} processes are one super-learner, which has none to mix with"
        raise UserError(what, fix="Start more, make super_learner smaller, or choose ssgd")
    return super_learner


def hash_of(text: str) -> str:
    """Short, for a comparison among ranks."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_alike(model: nn.Module, meeting: Meeting) -> None:
    """All learners start from the same weights and learn the same ones, or UserError; every rank
    calls it."""
    if meeting.store is None:
        return
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    said = all_of("start", meeting, f"{digest.hexdigest()} {hash_of(_learned(model))}")
    weights, learned = ([each.split()[part] for each in said] for part in (0, 1))
    if others := _unlike_first(weights):
        raise UserError(
            f"rank {others} starts from other weights than rank 0",
            fix="Call torch.manual_seed() with one number on all before you make the model",
        )
    if others := _unlike_first(learned):
        raise UserError(
            f"rank {others} learns other parameters than rank 0",
            fix="Freeze (requires_grad) and share the same parameters on all ranks",
        )


def _learned(model: nn.Module) -> str:
    """Each parameter's name, whether it is learned, and the first name of it if it has several."""
    first: dict[int, str] = {}
    return " ".join(
        f"{name} {value.requires_grad} {first.setdefault(id(value), name)}"
        for name, value in model.named_parameters(remove_duplicate=False)
    )


def all_of(name: str, meeting: Meeting, mine: str) -> list[str]:
    """What each rank has to say under `name`; every rank calls it, and waits for the others."""
    if meeting.store is None:
        return [mine]
    store, ranks = meeting.prefixed(name), [str(rank) for rank in range(meeting.place.world)]
    store.set(str(meeting.place.rank), mine)
    meeting.wait_for_all(name)
    found = [value.decode() for value in store.multi_get(ranks)]
    store.set(f"seen/{meeting.place.rank}", "")
    if meeting.hosts_store:  # it goes with this process, which may be refused now
        rendezvous.wait_for_keys(store, [f"seen/{rank}" for rank in ranks], LEAVE_SECONDS)
    return found


def check_drawn(found: list[str]) -> None:
    """Whether the loaders that ranks share have the same batches.

    Raises:
        UserError: they have not.
    """
    if others := _unlike_first(found):
        raise UserError(
            f"the loaders of rank {others} have other batches than those of rank 0",
            fix="Give share() loaders of the same data on all ranks, in one order, whose samplers "
            "draw by torch's, NumPy's or Python's global generator",
        )


def check_moments(moments: list[str]) -> None:
    """Whether the checkpoints that the ranks load (an empty text: none) were saved together.

    Raises:
        MixedCheckpointError: they were not.
        UserError: some ranks load none.
    """
    without = [str(rank) for rank, moment in enumerate(moments) if not moment]
    if without and len(without) < len(moments):
        raise UserError(
            f"rank {', '.join(without)} loads no checkpoint, the others do",
            fix="Load one on all ranks, or on none; it needs as many learners as saved it",
        )
    if others := _unlike_first(moments):
        raise MixedCheckpointError(
            f"the checkpoint of rank {others} was not saved together with that of rank 0",
            fix="Load those of one call of state_dict(): an older one that all ranks have",
        )


def _unlike_first(said: list[str]) -> str:
    """Ranks that say something else than rank 0, separated by commas."""
    return ", ".join(str(rank) for rank, other in enumerate(said) if other != said[0])
