"""All strategies of the engine, by name. A new one is a file beside this and a place below."""

from __future__ import annotations

from collections.abc import Mapping

from hadpsgd.decentralized.strategies.adpsgd import Adpsgd
from hadpsgd.decentralized.strategies.d1d import D1d
from hadpsgd.decentralized.strategies.diloco import Diloco
from hadpsgd.decentralized.strategies.dpsgd import Dpsgd
from hadpsgd.decentralized.strategies.hadpsgd import Hadpsgd
from hadpsgd.decentralized.strategies.local import Local
from hadpsgd.decentralized.strategies.noloco import Noloco
from hadpsgd.decentralized.strategies.rand import Rand
from hadpsgd.decentralized.strategies.sgp import Sgp
from hadpsgd.decentralized.strategies.ssgd import Single, Ssgd
from hadpsgd.decentralized.strategies.strategy import Choice, Strategy
from hadpsgd.errors import UserError

__all__ = ["STRATEGIES", "Choice", "Strategy", "create", "find"]

STRATEGIES: Mapping[str, type[Strategy]] = {
    kind.name: kind
    for kind in (
        Single,
        Ssgd,
        Dpsgd,
        Adpsgd,
        Rand,
        D1d,
        Local,
        Diloco,
        Noloco,
        Sgp,
        Hadpsgd,
    )
}


def find(name: str, *, among: str = "adpsgd") -> type[Strategy]:
    """The strategy of that name; of super-learners, the one among them.

    Raises:
        UserError: no such strategy.
    """
    kind = STRATEGIES.get(name)
    if kind is None:
        raise UserError(f"no strategy '{name}'", fix=f"There are: {', '.join(STRATEGIES)}")
    return find(among) if kind.of_super_learners else kind


def create(choice: Choice) -> Strategy:
    """The strategy that a config asks for.

    Raises:
        UserError: no such strategy.
    """
    return find(choice.strategy, among=choice.among).of(choice)
