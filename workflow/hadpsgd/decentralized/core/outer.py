"""What becomes of mixed weights, where they do not simply take the place of the learner's.

A strategy that needs more than its weights (momentum over rounds, a push-sum weight) brings an
`Outer`: one for each learner. The learner calls it for every mix, in the engine, in simulated time
and in a replay alike; checkpoints hold its state. It is for strategies that mix between gradients.

This file is read wherever names of strategies are, so it does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

if TYPE_CHECKING:
    from torch import Tensor

    from hadpsgd.decentralized.core.events import Mix


class Outer:
    """The state of a learner beside its weights, and the step that a mix makes of both.

    This one has none: what is mixed is what the next gradient is taken at.
    """

    biased: ClassVar[bool] = False
    """Whether gradients are taken at other weights than those that are mixed: at `unbiased`."""
    of_statistics: ClassVar[bool] = True
    """Whether `step` is for the statistics of normalisation layers, too. Else they are mixed, and
    the elements below are those of the parameters: momentum could make a variance negative."""

    def step(self, mix: Mix, mixed: Tensor, weights: Tensor) -> None:
        """Turn the mixed weights into the learner's next ones, in place.

        Args:
            mix: which round it is.
            mixed: [elements] sum over j of the shares times x_j, the learner's own share being what
                the others leave of 1.
            weights: [elements] the learner's before the mix.
        """

    def unbiased(self, weights: Tensor, out: Tensor) -> None:
        """Where the next gradient is taken, into `out`; all [elements]."""
        out.copy_(weights)

    def state(self) -> dict[str, Any]:
        """What a resumed learner needs: tensors and numbers, by name."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Be as `state` says."""


class SlowWeights(Outer):
    """Parameters that move once a round, by momentum; learners begin their steps at them.

    Args:
        weights: [elements] those that all learners begin with.
        rate: outer learning rate.
        momentum: of the outer steps.
    """

    of_statistics = False

    def __init__(self, weights: Tensor, *, rate: float, momentum: float) -> None:
        self.slow = weights.clone()
        self.velocity = weights.new_zeros(weights.shape)
        self.rate = rate
        self.momentum = momentum

    @override
    def state(self) -> dict[str, Any]:
        """Both buffers."""
        return {"slow": self.slow, "velocity": self.velocity}

    @override
    def restore(self, state: dict[str, Any]) -> None:
        """Both buffers."""
        self.slow.copy_(state["slow"])
        self.velocity.copy_(state["velocity"])
