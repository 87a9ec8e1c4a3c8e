"""What an engine that mixes needs of others: real processes and simulations bring their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, SupportsFloat

from hadpsgd.decentralized.core.engine import Backward


class Joins(Protocol):
    """How a newcomer gets in."""

    def __call__(self, *, seconds: float, steps: int, version: int) -> None: ...


class Reunites(Protocol):
    """How a super-learner goes on by its first member, and new ones come to it (see `elastic`)."""

    def left(self) -> None: ...

    def take(self, backward: Backward, of: Sequence[int]) -> tuple[SupportsFloat, int]: ...

    def close(self, *, finished: bool | None) -> None: ...

    def there(self) -> int: ...

    def let_in(self, life: int) -> bool: ...

    def come_back(self) -> None: ...


class Sharing(Protocol):
    """Those who share a gradient."""

    @property
    def size(self) -> int: ...

    @property
    def bytes_sent(self) -> float: ...


class Reduces(Protocol):
    """How gradients become their mean over a group (see `reducer.Reducer`)."""

    active: bool

    @property
    def group(self) -> Sharing: ...

    def check(self) -> None: ...

    def collected(self) -> None: ...

    def finish(self, everybody_here: Callable[[], None] = ..., /) -> None: ...

    def culprits(self) -> list[int]: ...

    def abandon(self) -> None: ...

    def close(self) -> None: ...
