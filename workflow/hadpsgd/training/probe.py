"""What differences of the learners' weights do to the mean gradient, and how steep the loss is.

At weights w_j with mean w_a, and on a minibatch of each learner, the mean of the learners'
gradients is g_a; taken at w_a on the same minibatches it is g_s; g is the gradient at w_a on other,
more examples. g_a - g_s is the noise of the weights' differences, g_s - g that of the minibatches;
g_a . g / |g|^2 is the part of the learning rate that goes down the slope (arXiv 2112.01433, whose
abstract alone was read: it names the noise and the effective rate, formulas are ours).

Everything is computed beside the learners: no weight, no gradient and no random number of theirs
changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hadpsgd.decentralized.core.buffers import Flat
from hadpsgd.egs.shuffle import Permutation
from hadpsgd.models.loss import IGNORE
from hadpsgd.training.curvature import hessian_product, top_eigenvalue
from hadpsgd.training.data import Feed

REFERENCE = 1024
"""Subsequences of g; half of all where there are fewer than twice as many."""
CURVATURE = 256
"""Of these the first ones, for the Hessian."""
TOGETHER = 128
"""Subsequences whose activations are held at once."""
PREFIX = "probe_"
"""Of the metrics' names."""
DRAW = 2112_01433
"""Epoch whose permutation of the examples no run trains with."""


@dataclass(frozen=True, kw_only=True)
class Landscape:
    """What is found at one moment."""

    difference_noise: float
    """|g_a - g_s| / |g_s|."""
    minibatch_noise: float
    """|g_s - g| / |g_s|."""
    noise_per_distance: float
    """|g_a - g_s| over the learners' root mean square distance from w_a; NaN where they agree."""
    effective_rate: float
    """g_a . g / |g|^2: over the learning rate, momentum and clipping aside."""
    sharpness: float
    """Largest eigenvalue of the Hessian at w_a."""

    def metrics(self) -> dict[str, float]:
        """By the names of the curves; what is not finite is left out."""
        found = {PREFIX + name: value for name, value in asdict(self).items()}
        return {name: value for name, value in found.items() if math.isfinite(value)}


class Probe:
    """Measures a landscape on examples that are the same at every epoch.

    Memory, in models: 12, and as many as the eigenvalue took products with the Hessian (20 at
    most): counted in the code, not measured.

    Args:
        module: gives the loss, a mean over frames, of (features, pdf-ids).
        flat: of the module's parameters.
        feed: of the training examples.
        nodes: (super-)learners with weights of their own.
        batch: subsequences of a step, over all of them.
        seed: of the choice of examples.
    """

    def __init__(
        self, module: nn.Module, flat: Flat, feed: Feed, *, nodes: int, batch: int, seed: int
    ) -> None:
        self._module = module
        self._flat = flat
        self._feed = feed
        size = len(feed.dataset)
        order = Permutation(size, seed, DRAW)
        held, share = min(REFERENCE, max(1, size // 2)), max(1, batch // nodes)
        self.reference = order(np.arange(held))
        taken = held + np.arange(nodes * share) % max(1, size - held)
        self.minibatches = list(order(taken % size).reshape(nodes, share))
        """Of each node: indices [subsequences]."""

    def measure(self, weights: Callable[[int], Tensor]) -> Landscape:
        """At the weights [elements] of each node; the module points to none of them afterwards.

        No random number is taken from those who draw after it.
        """
        nodes = range(len(self.minibatches))
        first = weights(0)
        mean = torch.zeros_like(first)
        for node in nodes:  # the mean of equal weights is these, to the bit
            mean += (weights(node) - first) / len(nodes)
        mean += first
        with torch.random.fork_rng([mean.device] if mean.is_cuda else []):
            return self._measure(weights, mean)

    def _measure(self, weights: Callable[[int], Tensor], mean: Tensor) -> Landscape:
        own, at_mean = torch.zeros_like(mean), torch.zeros_like(mean)
        distance = 0.0
        for node, minibatch in enumerate(self.minibatches):
            each = weights(node)
            own += self.gradient(each, minibatch) / len(self.minibatches)
            at_mean += self.gradient(mean, minibatch) / len(self.minibatches)
            distance += float((each - mean).square().sum()) / len(self.minibatches)
        slope = self.gradient(mean, self.reference)
        noise, small = float((own - at_mean).norm()), float(at_mean.norm())
        return Landscape(
            difference_noise=_over(noise, small),
            minibatch_noise=_over(float((at_mean - slope).norm()), small),
            noise_per_distance=_over(noise, math.sqrt(distance)),
            effective_rate=_over(float(own @ slope), float(slope @ slope)),
            sharpness=self.sharpness(mean, slope),
        )

    def sharpness(self, at: Tensor, slope: Tensor) -> float:
        """Largest eigenvalue of the Hessian at weights [elements], looked for from `slope` on."""
        few = self.reference[:CURVATURE]
        product = hessian_product(lambda weights: self.gradient(weights, few), at)
        draws = torch.Generator().manual_seed(1)
        noise = torch.zeros_like(at)
        for slot in self._flat.slots:  # gaps between parameters stay zero
            drawn = torch.randn(slot.parameter.shape, generator=draws)
            slot.of(noise).copy_(drawn)
        return top_eigenvalue(product, slope / slope.norm() + noise / noise.norm())

    def gradient(self, weights: Tensor, indices: NDArray[np.int64]) -> Tensor:
        """Of the mean loss over the frames of these subsequences at weights [elements]."""
        self._flat.point_to(weights)
        total, frames = torch.zeros_like(weights), 0
        parameters = [slot.parameter for slot in self._flat.slots]
        for start in range(0, len(indices), TOGETHER):
            part = np.sort(indices[start : start + TOGETHER])
            x, targets = self._feed.of(part)
            torch.manual_seed(start)  # dropout's masks are those of every other time
            with torch.enable_grad():
                found = torch.autograd.grad(self._module(x, targets), parameters)
            counted = int((targets != IGNORE).sum())
            for slot, gradient in zip(self._flat.slots, found, strict=True):
                slot.of(total).add_(gradient, alpha=counted)
            frames += counted
        return total.div_(max(1, frames))


def _over(value: float, unit: float) -> float:
    return value / unit if unit else math.nan
