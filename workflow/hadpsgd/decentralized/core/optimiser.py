"""How a gradient becomes an update of a learner's weights: our own SGD, or any of torch's.

`sgd.Sgd` works on the flat buffers alone and is what the speech workflow trains with. Its state is
the learner's velocity. `TorchOptimiser` lets a torch.optim optimiser work on the module's
parameters, which are views of the same buffers; its state stays with the learner, as the velocity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from hadpsgd.decentralized.core.buffers import Flat, Slot
from hadpsgd.errors import UserError


class Optimiser(Protocol):
    """One learner's."""

    @property
    def has_velocity(self) -> bool:
        """Whether it keeps a velocity in the learner's buffer."""

    @property
    def weight_decay(self) -> float:
        """Taken at `phi` by `update`."""

    def bind(self, flat: Flat, *, shared: bool) -> None:
        """Before anything else: the buffers; whether several learners share their gradients."""

    def update(
        self,
        weights: Tensor,
        gradient: Tensor,
        velocity: Tensor,
        rate: float,
        *,
        phi: Tensor,
        norm: float,
    ) -> None:
        """One step in place, all tensors of one shape; `phi` is where the gradient was taken.

        The gradient is used up.
        """

    def state_dict(self) -> dict[str, Any]:
        """Its state beside the velocity."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As `state_dict` gave it."""


class TorchOptimiser:
    """A torch.optim optimiser with its parameter groups and rates, as its own schedulers set them.

    Its weights are the learner's of the moment, where the gradient may be older ones' (for AdamW,
    decay is taken at the weights of the moment). A parameter without a gradient is left alone, as
    torch does; where gradients are shared, it has a gradient of zeros. One has a gradient where
    backward reached it, or where somebody wrote one (`p.grad = ...`, if that is not all zeros).

    Args:
        optimizer: of the module's parameters.
        clip_norm: a gradient of a larger norm is made shorter (0: never).

    Raises:
        UserError: an optimiser that needs more than one gradient of a kind that is mixed.
    """

    has_velocity = False
    weight_decay = 0.0

    def __init__(self, optimizer: torch.optim.Optimizer, *, clip_norm: float = 0.0) -> None:
        if isinstance(optimizer, torch.optim.LBFGS):
            raise UserError("LBFGS needs the loss again and again within a step")
        if isinstance(optimizer, torch.optim.SparseAdam):
            raise UserError("SparseAdam takes sparse gradients alone", fix="Take Adam")
        self.optimizer = optimizer
        self.clip_norm = clip_norm
        self._ours = False
        self._hooks = [optimizer.register_step_pre_hook(self._check_caller)]

    def bind(self, flat: Flat, *, shared: bool) -> None:
        """Learn which parameters get a gradient.

        Raises:
            UserError: the optimiser's parameters are not those that learn.
        """
        check_parameters(self.optimizer, flat.slots)
        self._flat = flat
        self._shared = shared
        self._reached: set[Tensor] = set()
        for slot in flat.slots:
            self._hooks.append(slot.parameter.register_post_accumulate_grad_hook(self._reached.add))

    def release(self) -> None:
        """The training is over: the optimiser is its owner's again."""
        for hook in self._hooks:
            hook.remove()

    def update(
        self,
        weights: Tensor,
        gradient: Tensor,
        velocity: Tensor,  # noqa: ARG002
        rate: float,  # noqa: ARG002
        *,
        phi: Tensor,  # noqa: ARG002
        norm: float,
    ) -> None:
        """The optimiser's step at `weights`; rates are its own."""
        if self.clip_norm and norm > self.clip_norm:
            gradient.mul_(self.clip_norm / norm)
        flat = self._flat
        elsewhere = weights.data_ptr() != flat.weights[flat.learnt].data_ptr()
        begin = flat.elements - len(weights)
        for slot in flat.slots:
            p, part = slot.parameter, slice(slot.start - begin, slot.stop - begin)
            if not flat.is_view(slot):
                p.data.copy_(slot.shaped(weights[part]))
            elif elsewhere:
                p.data = slot.shaped(weights[part])
            reached = self._shared or p in self._reached or bool(gradient[part].any())
            left_out = not p.requires_grad or not reached
            p.grad = None if left_out else slot.shaped(gradient[part]).to(p.dtype)
        copies = [slot for slot in flat.slots if not flat.is_view(slot)]
        before_copies = [slot.parameter.detach().clone() for slot in copies]
        self._ours = True
        try:
            self.optimizer.step()
        finally:
            self._ours = False
        for slot, before in zip(copies, before_copies, strict=True):
            # only what the step changed: the buffer keeps what rounding takes from the copy
            part = slice(slot.start - begin, slot.stop - begin)
            change = slot.parameter.detach().to(weights.dtype) - before.to(weights.dtype)
            slot.shaped(weights[part]).add_(change)
        for slot in flat.slots:
            if flat.is_view(slot):
                if elsewhere:
                    slot.parameter.data = slot.of(flat.weights)
                slot.parameter.grad = slot.of(flat.gradient)
        self._reached.clear()

    def state_dict(self) -> dict[str, Any]:
        """The optimiser's."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The optimiser's."""
        self.optimizer.load_state_dict(state)

    def _check_caller(self, *_: object) -> None:
        if not self._ours:
            raise UserError(
                "optimizer.step() was called beside the trainer", fix="Call trainer.step() alone"
            )


def check_parameters(optimizer: torch.optim.Optimizer, slots: Sequence[Slot]) -> None:
    """Refuse an optimiser that would leave parameters alone or that has some of others.

    Raises:
        UserError: says how many and of what shape.
    """
    held = {id(p): p for group in optimizer.param_groups for p in group["params"]}
    ours = {id(slot.parameter): slot.parameter for slot in slots}
    missing = [tuple(p.shape) for key, p in ours.items() if key not in held]
    if missing:
        raise UserError(
            f"{len(missing)} parameters that require gradients are in no group of the optimizer, "
            f"the first of shape {missing[0]}",
            fix="Add them to it, or freeze them (requires_grad_(False))",
        )
    strange = [tuple(p.shape) for key, p in held.items() if key not in ours and p.requires_grad]
    if strange:
        raise UserError(
            f"{len(strange)} parameters of the optimizer are not the model's, "
            f"the first of shape {strange[0]}",
            fix="Make the optimizer from model.parameters()",
        )
