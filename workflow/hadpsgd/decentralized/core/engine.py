"""What a training loop holds: a model to call backward on, and `step`.

engine = build(...)                        # assembly.py
with engine:
    while engine.steps < total:
        engine.module(x) ... loss.backward()
        engine.step(rate, last=engine.steps + 1 == total)
        if engine.paused: ...save engine.state_dict()...; engine.go_on()
    while not engine.over:                 # partners may still need this learner's mixes
        engine.serve()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, SupportsFloat

from torch import Tensor, nn

from hadpsgd.decentralized.core.observation import Observation
from hadpsgd.decentralized.core.place import Place

Backward = Callable[[int], tuple[SupportsFloat, int]]
"""Adds the gradient of the minibatch of a member of the super-learner; its loss, its frames."""


class NotFiniteError(ArithmeticError):
    """A gradient is NaN or infinite."""


class ExcludedError(RuntimeError):
    """The others took this learner for dead; it must come again as a newcomer."""


class LostMemberError(RuntimeError):
    """A rank of a group is gone, or cannot be reached: what was begun with it came to nothing."""


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What counts of the record of a process that is over."""

    file: str
    """Its name, in the folder of the run's records."""
    length: int
    """Bytes from its begin."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a step was like."""

    norm: float
    """Of the gradient, after averaging over the super-learner."""
    staleness: int
    """Versions that the gradient had missed."""
    exposed: float
    """Seconds that the step waited for communication."""
    skipped: bool
    """Whether the gradient was not finite and was left out."""


class Engine(Protocol):
    """One learner (process) of a training run."""

    @property
    def module(self) -> nn.Module:
        """To call; its parameters are the learner's weights."""

    @property
    def place(self) -> Place:
        """Whose engine it is."""

    @property
    def steps(self) -> int:
        """Updates so far."""

    @property
    def rounds(self) -> int:
        """Mixes so far."""

    @property
    def paused(self) -> bool:
        """All learners stand still in a consistent state: save it, then `go_on`."""

    @property
    def over(self) -> bool:
        """Whether this pause is the end."""

    @property
    def complete(self) -> bool:
        """At the end: whether all learners have applied their last gradients."""

    @property
    def moment(self) -> str:
        """Names a pause: the same at all learners, and no two pauses alike."""

    @property
    def leads(self) -> bool:
        """Whether this rank does what only one should do."""

    @property
    def alive(self) -> Sequence[int]:
        """The super-learners that take part."""

    @property
    def ranks(self) -> Sequence[int]:
        """Those that take part."""

    @property
    def living(self) -> tuple[int, Mapping[int, int]]:
        """Number of the membership, and the super-learners that it has, with the number of that
        with which the process of each came; the two belong together."""

    @property
    def bytes_sent(self) -> int:
        """By this process so far."""

    @property
    def weights(self) -> Tensor:
        """The learner's, flat; stand still while paused."""

    def snapshot(self) -> tuple[Tensor, int]:
        """A copy of the weights of this moment, pending mixes included; the version that they are
        in the record, where there is one."""

    def observe(self) -> Observation:
        """What there was to see of the mixes since the last call."""

    def take(self, backward: Backward, of: Sequence[int] = ()) -> tuple[SupportsFloat, int]:
        """Leave the gradient for `step`; its loss, its frames. `of` tells others what it is of."""

    def go_alone(self, lost: LostMemberError) -> None:
        """The other members were lost in `take` or `step`: both are to be done again.

        Raises:
            LostMemberError: `lost`; this member cannot go on.
        """

    @property
    def alone(self) -> bool:
        """Whether this first member of a super-learner has lost others, and goes on."""

    def let_in(self) -> int:
        """Alone and between gradients: let new members in; which life they are, 0: nobody came."""

    def come_back(self) -> None:
        """Instead of `join`, as a new member of a super-learner whose first one lives.

        Raises:
            TooLateError: the run is over.
            LostMemberError: the first one, or another new one, died.
        """

    def step(self, rate: float, *, last: bool = False, block: int | None = None) -> Report: ...
    def rest(self) -> None: ...
    def serve(self) -> None: ...
    def request_pause(self) -> None: ...
    def request_stop(self) -> None: ...
    def go_on(self) -> None: ...
    def no_more_gradients(self) -> None: ...
    def join(self, seconds: float) -> None: ...
    def take_place(self, state: dict[str, Any], *, source: int, record: Counted | None) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...
    def load_weights(self, weights: Tensor) -> None: ...
    def __enter__(self) -> Engine: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...
