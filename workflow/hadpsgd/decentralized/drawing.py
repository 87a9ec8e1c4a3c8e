"""The batches of an epoch, alike on all ranks, whatever draws them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, Sampler
from torch.utils.data.distributed import DistributedSampler

from hadpsgd.errors import UserError

_NUMPYS = 2**32
"""Seeds of NumPy's global generator are below."""


def sampler_of(loader: object) -> Any:
    """The sampler whose batches are lists of examples' numbers, if there is one.

    Raises:
        UserError: it gives each rank other batches already.
    """
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return None
    parts = [*_parts(loader.sampler), *_parts(loader.batch_sampler)]
    if any(isinstance(part, DistributedSampler) for part in parts):
        raise UserError(
            "the loader's DistributedSampler gives each rank a part of the data, and share() would "
            "take a part of that",
            fix="Give share() a loader without it, with shuffle=True",
        )
    return loader.batch_sampler


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """The batches of an epoch, alike on all ranks."""

    epoch: int
    batches: list[list[Any]]

    @cached_property
    def name(self) -> str:
        """Short, for comparisons."""
        found = hashlib.sha256()
        for batch in self.batches:
            found.update(repr(batch).encode())
        return found.hexdigest()[:16]


def drawn(sampler: Iterable[list[Any]], *, seed: int, epoch: int) -> Drawn:
    """The batches of an epoch: they depend on its number and the seed alone.

    So they do where the sampler draws from the global generators of torch, NumPy or Python, or from
    one of torch's of its own. All of them are as before afterwards.
    """
    with _seeded(seed + epoch, own=[g for part in _parts(sampler) for g in _generators(part)]):
        return Drawn(epoch=epoch, batches=list(sampler))


def check_resumed(state: Mapping[str, Any], now: str) -> None:
    """What was done of an epoch are batches of the same epoch now.

    Raises:
        UserError: they are others.
    """
    if state.get("drawn", "") not in ("", now):  # a former version did not say
        raise UserError(
            "the checkpoint is of the middle of an epoch whose batches were others",
            fix="Give share() the same data, and a sampler that draws by torch's, NumPy's or "
            "Python's global generator; or load a checkpoint of an epoch's end",
        )


@contextmanager
def _seeded(number: int, *, own: Sequence[torch.Generator]) -> Iterator[None]:
    python, numpys = random.getstate(), np.random.get_state()
    states = [generator.get_state() for generator in own]
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(number)
            random.seed(number)
            np.random.seed(number % _NUMPYS)
            for generator in own:
                generator.manual_seed(number)
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpys)
        for generator, state in zip(own, states, strict=True):
            generator.set_state(state)


def _parts(sampler: object) -> Iterator[object]:
    """A sampler and those that it is made of."""
    todo, seen = [sampler], set[int]()
    while todo:
        part = todo.pop()
        if id(part) not in seen:
            seen.add(id(part))
            yield part
            todo += [value for value in _attributes(part) if isinstance(value, Sampler)]


def _generators(part: object) -> list[torch.Generator]:
    return [value for value in _attributes(part) if isinstance(value, torch.Generator)]


def _attributes(part: object) -> list[object]:
    return list(vars(part).values()) if hasattr(part, "__dict__") else []
