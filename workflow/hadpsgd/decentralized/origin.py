"""What a rank's checkpoint was saved by; one of something else is refused before it is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from hadpsgd.decentralized.core.optimiser import Optimiser, TorchOptimiser
from hadpsgd.decentralized.pool import Pool
from hadpsgd.decentralized.share import Share
from hadpsgd.decentralized.strategies.mixing_engine import DecentralizedEngine
from hadpsgd.errors import UserError

_AS_BEFORE = "Make model, optimizer and trainer as before, or begin anew"


def origin_of(engine: DecentralizedEngine) -> dict[str, Any]:
    """Rank, learners, strategy, shapes of all tensors and the optimiser with its groups."""
    return {
        "rank": engine.place.rank,
        "learners": engine.place.world,
        "strategy": _strategy(engine),
        "tensors": [(name, list(t.shape)) for name, t in engine.module.state_dict().items()],
        "optimizer": _optimizer(engine.learner.sgd),
    }


def check_origin(state: Mapping[str, Any], engine: DecentralizedEngine) -> None:
    """Whether what `Trainer.state_dict` gave was saved by such a rank.

    Raises:
        UserError: says in what it differs. What a former version did not note is not compared.
    """
    missing = [name for name in ("learner", "buffers", "shares") if name not in state]
    if missing:
        raise UserError(
            f"this is no checkpoint of a trainer: it has no '{missing[0]}'",
            fix="Load what trainer.state_dict() gave",
        )
    of, own = state.get("of", {}), origin_of(engine)
    found = {**own, **of}
    if found["learners"] != own["learners"]:
        raise UserError(
            f"the checkpoint is one of {found['learners']} learners, and these are "
            f"{own['learners']}",
            fix="Start as many, or begin anew",
        )
    if found["rank"] != own["rank"]:
        raise UserError(f"the checkpoint is of rank {found['rank']}, and this is {own['rank']}")
    _compare("strategy", found, own)
    for one, other in zip_longest(map(tuple, found["tensors"]), map(tuple, own["tensors"])):
        if one != other:
            raise UserError(
                f"the checkpoint is of another model: it has {_shown(one)}, this one "
                f"{_shown(other)}",
                fix=_AS_BEFORE,
            )
    _compare("optimizer", found, own)


def check_shares(states: Sequence[Any], shares: Sequence[Share | Pool]) -> None:
    """Whether places in the data are of such shares.

    Raises:
        UserError: of more or fewer, or of others.
    """
    if len(states) != len(shares):
        raise UserError(
            f"the checkpoint knows {len(states)} shares, not {len(shares)}",
            fix="Call share() as often as before, then load",
        )
    for share, state in zip(shares, states, strict=True):
        if not isinstance(state, dict) or state.keys() | {"drawn"} != share.state().keys():
            raise UserError(
                "the checkpoint is of a strategy that shares data otherwise, or of a former "
                "version",
                fix="Load it with the strategy that wrote it, or begin anew",
            )


def _compare(what: str, found: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    if found[what] != own[what]:
        raise UserError(
            f"the checkpoint's {what} is {found[what]}, and this one is {own[what]}",
            fix=_AS_BEFORE,
        )


def _strategy(engine: DecentralizedEngine) -> str:
    name, size = engine.strategy.name, engine.place.size
    return f"{name} among super-learners of {size}" if 1 < size < engine.place.world else name


def _optimizer(optimiser: Optimiser) -> str:
    if not isinstance(optimiser, TorchOptimiser):
        return type(optimiser).__name__
    groups = " + ".join(str(len(g["params"])) for g in optimiser.optimizer.param_groups)
    return f"{type(optimiser.optimizer).__name__} of {groups} parameters"


def _shown(tensor: tuple[str, list[int]] | None) -> str:
    return "no more" if tensor is None else f"{tensor[0]} {tensor[1]}"
