"""Options of `decentralize`: within their bounds, and such that the strategy takes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from numbers import Integral
from typing import Any, Final

from hadpsgd.decentralized.strategies.registry import find
from hadpsgd.errors import UserError

DEFAULTS: Final[Mapping[str, Any]] = {
    "super_learner": 1,
    "among": "adpsgd",
    "average_every": 8,
    "outer_rate": 0.7,
    "outer_momentum": None,
    "pace": 1,
    "max_staleness": 64,
}
"""Of options that some strategies take alone."""
_COUNTS = ("super_learner", "average_every", "pace", "max_staleness", "backwards")
_OF_SUPER_LEARNERS = {"super_learner", "among"}
_FIELDS: Final[Mapping[str, str]] = {"every": "average_every"}
"""Fields of strategies that have another name as an option."""


def check_bounds(options: Mapping[str, Any]) -> None:
    """Whether numbers are such as can be meant; None is none.

    Raises:
        UserError: says the option, its bounds and what was given.
    """
    for name in _COUNTS:
        value = options.get(name)
        if value is not None and not (isinstance(value, Integral) and int(value) >= 1):
            raise UserError(f"{name} is a whole number from 1, not {value!r}")
    if not 0.0 <= options["clip_norm"] < math.inf:
        what = f"clip_norm is a number from 0 (no limit), not {options['clip_norm']!r}"
        raise UserError(what)
    rate, momentum = options.get("outer_rate"), options.get("outer_momentum")
    if rate is not None and not 0.0 < rate < math.inf:
        raise UserError(f"outer_rate is a number above 0, not {rate!r}")
    if momentum is not None and not 0.0 <= momentum < 1.0:
        raise UserError(f"outer_momentum is a number from 0 to below 1, not {momentum!r}")


def taken(strategy: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """All of `DEFAULTS`, with those that were given (are not None).

    Raises:
        UserError: the strategy does not take one of them, or lacks the size of super-learners.
    """
    given = {name: options[name] for name in DEFAULTS if options[name] is not None}
    among = given.get("among", DEFAULTS["among"])
    takes = _takes(among) | _OF_SUPER_LEARNERS if strategy == "hadpsgd" else _takes(strategy)
    # a size of 1 is none
    others = [n for n in given if n not in takes and (n, given[n]) != ("super_learner", 1)]
    if others:
        whose = f"{strategy} among {among}" if strategy == "hadpsgd" else strategy
        fix = f"It takes {', '.join(sorted(takes))}" if takes else "Leave it out"
        raise UserError(f"strategy {whose} has no {others[0]}", fix=fix)
    if strategy == "hadpsgd" and "super_learner" not in given:
        what = "hadpsgd without super_learner, the number of learners that share gradients"
        raise UserError(what, fix="Give it, or choose adpsgd")
    return {**DEFAULTS, **given}


def _takes(strategy: str) -> set[str]:
    kind = find(strategy)
    names: list[str] = (
        [field.name for field in fields(kind) if field.init] if is_dataclass(kind) else []
    )
    return {_FIELDS.get(name, name) for name in names} & DEFAULTS.keys()
