"""torch DistributedDataParallel behind the engine's interface: the yardstick, it does not mix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, SupportsFloat

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from hadpsgd.decentralized.core.engine import (
    Backward,
    Counted,
    LostMemberError,
    NotFiniteError,
    Report,
)
from hadpsgd.decentralized.core.heap import keep_freed_memory
from hadpsgd.decentralized.core.observation import Observation
from hadpsgd.decentralized.core.sgd import Sgd
from hadpsgd.decentralized.network.rendezvous import Meeting, process_group
from hadpsgd.errors import UserError

AGREE_EVERY = 16
"""Steps between the small allreduces by which the ranks agree to pause or stop."""


class DdpEngine:
    """One rank of a DDP run; arguments as of `assembly.build` (`by_host`: gloo on GPUs, too).

    A resumed run differs from an unbroken one by rounding: torch sorts its buckets after the first
    step of a process, and sums that one in another order than those that follow.
    """

    def __init__(
        self,
        module: nn.Module,
        sgd: Sgd,
        meeting: Meeting,
        *,
        skip_not_finite: bool = False,
        by_host: bool = False,
    ) -> None:
        keep_freed_memory()
        self.place = meeting.place
        self.sgd = sgd
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        device = self.parameters[0].device
        by_host = by_host or device.type == "cpu"
        process_group("ddp", meeting, rank=self.place.rank, size=self.place.world, by_host=by_host)
        self.module = DistributedDataParallel(
            module, device_ids=[device] if device.type == "cuda" else None
        )
        self.optimizer = torch.optim.SGD(
            self.parameters,
            lr=0.0,
            momentum=sgd.momentum,
            nesterov=sgd.nesterov,
            weight_decay=sgd.weight_decay,
        )
        self.skip_not_finite = skip_not_finite
        self.steps = self.rounds = 0
        self.paused = self.over = self.complete = False
        self._wants = torch.zeros(2, device=device)

    def __enter__(self) -> DdpEngine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        dist.destroy_process_group()

    @property
    def weights(self) -> Tensor:
        """All parameters, one after the other."""
        return parameters_to_vector(self.parameters).detach()

    def snapshot(self) -> tuple[Tensor, int]:
        """A copy of the weights; the updates so far."""
        return self.weights.clone(), self.steps

    @property
    def moment(self) -> str:
        """Names a pause."""
        return f"{0:09d}-{self.steps:09d}"

    @property
    def leads(self) -> bool:
        """Rank 0."""
        return self.place.rank == 0

    @property
    def alive(self) -> Sequence[int]:
        """All ranks are one node."""
        return (0,)

    @property
    def ranks(self) -> Sequence[int]:
        """All, always."""
        return range(self.place.world)

    @property
    def living(self) -> tuple[int, Mapping[int, int]]:
        """Always the same."""
        return 0, dict.fromkeys(self.alive, 0)

    def join(self, seconds: float) -> None:  # noqa: ARG002
        """DDP has no newcomers."""
        raise UserError("strategy ddp cannot go on with newcomers")

    def take_place(self, state: dict[str, Any], *, source: int, record: Counted | None) -> None:
        """All ranks are one node, which is never dead alone."""
        raise NotImplementedError

    @property
    def bytes_sent(self) -> int:
        """What a ring allreduce of the gradients sends, as DDP does not count."""
        size = sum(p.nbytes for p in self.parameters)
        return 2 * size * (self.place.world - 1) // self.place.world * self.steps

    def observe(self) -> Observation:
        """All learners have one model."""
        return Observation()

    def take(self, backward: Backward, of: Sequence[int] = ()) -> tuple[SupportsFloat, int]:  # noqa: ARG002
        """This rank's gradient."""
        return backward(self.place.member)

    @property
    def alone(self) -> bool:
        """All ranks are needed."""
        return False

    def let_in(self) -> int:
        """Nobody goes on alone."""
        return 0

    def come_back(self) -> None:
        """Nobody goes on alone."""
        raise UserError("ddp cannot go on with newcomers")

    def go_alone(self, lost: LostMemberError) -> None:
        """Every step needs all ranks."""
        raise lost

    def step(self, rate: float, *, last: bool = False, block: int | None = None) -> Report:  # noqa: ARG002
        """Apply the averaged gradient; raises NotFiniteError."""
        limit = self.sgd.clip_norm or math.inf
        norm = float(nn.utils.clip_grad_norm_(self.parameters, limit))
        skip = not math.isfinite(norm)
        if skip and not self.skip_not_finite:
            raise NotFiniteError(f"the averaged gradient is not finite at step {self.steps}")
        if not skip:
            self.optimizer.param_groups[0]["lr"] = rate
            self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps += 1
        if self.steps % AGREE_EVERY == 0:
            self._agree()
        self.complete |= last
        self.over |= last
        self.paused |= last
        return Report(norm=norm, staleness=0, exposed=0.0, skipped=skip)

    def rest(self) -> None:
        """Nobody needs this rank without gradients."""

    def serve(self) -> None:
        """Nobody needs this rank without gradients."""

    def request_pause(self) -> None:
        """At the next agreement."""
        self._wants[0] = 1

    def request_stop(self) -> None:
        """At the next agreement."""
        self._wants[1] = 1

    def no_more_gradients(self) -> None:
        """Before entering: the last gradient was applied before the checkpoint."""
        self.paused = self.over = self.complete = True

    def go_on(self) -> None:
        """After a pause."""
        self.paused = False

    def state_dict(self) -> dict[str, Any]:
        """Weights and momentum as flat vectors, and the step."""
        velocity = [
            self.optimizer.state[p].get("momentum_buffer", torch.zeros_like(p))
            for p in self.parameters
        ]
        number, living = self.living
        return {
            "membership": number,
            "living": dict(living),
            "weights": self.weights,
            "velocity": parameters_to_vector(velocity),
            "steps": self.steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Before the first step."""
        self.steps = state["steps"]
        self.load_weights(state["weights"])
        velocity = [torch.empty_like(p) for p in self.parameters]
        vector_to_parameters(state["velocity"].to(velocity[0]), velocity)
        for parameter, buffer in zip(self.parameters, velocity, strict=True):
            self.optimizer.state[parameter]["momentum_buffer"] = buffer

    def load_weights(self, weights: Tensor) -> None:
        """Give the model other weights (a flat vector)."""
        vector_to_parameters(weights.to(self.parameters[0]), self.parameters)

    def _agree(self) -> None:
        dist.all_reduce(self._wants)
        pause, stop = (self._wants > 0).tolist()
        self._wants.zero_()
        self.over = stop
        self.paused = pause or stop
