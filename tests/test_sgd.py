"""One update of the optimiser, against torch.optim.SGD step by step."""

from __future__ import annotations

import pytest
import torch

from hadpsgd.decentralized.core.sgd import Sgd

SETTINGS = [
    Sgd(),
    Sgd(momentum=0.9),
    Sgd(momentum=0.9, nesterov=True),
    Sgd(momentum=0.5, weight_decay=0.1),
    Sgd(momentum=0.9, nesterov=True, weight_decay=0.1, clip_norm=1.0),
    Sgd(clip_norm=1.0),
]


@pytest.mark.parametrize("sgd", SETTINGS)
def test_it_is_torchs(sgd: Sgd) -> None:
    """Rates that change, and gradients on both sides of the limit to their norm."""
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(7, generator=generator, dtype=torch.float64)
    velocity = torch.zeros_like(weights)
    theirs = torch.nn.Parameter(weights.clone())
    optimiser = torch.optim.SGD(
        [theirs], 1.0, sgd.momentum, nesterov=sgd.nesterov, weight_decay=sgd.weight_decay
    )
    norms = []
    for step in range(12):
        rate = 0.3 / (1 + step)
        gradient = torch.randn(7, generator=generator, dtype=torch.float64) / (1 + step % 4) ** 2
        norm = float(gradient.norm())
        norms.append(norm)
        theirs.grad = gradient.clone()
        if sgd.clip_norm:  # torch's clip_grad_norm_ divides by the norm and 1e-6
            theirs.grad *= min(1.0, sgd.clip_norm / norm)
        optimiser.param_groups[0]["lr"] = rate
        optimiser.step()
        sgd.update(weights, gradient, velocity, rate, phi=weights.clone(), norm=norm)
        torch.testing.assert_close(weights, theirs.data, rtol=1e-12, atol=1e-15)
    assert min(norms) < 1.0 < max(norms)


def test_weights_decay_where_the_gradient_was_taken() -> None:
    """A gradient that is late belongs to older weights; its decay does, too."""
    weights, phi = torch.tensor([1.0, 2.0]), torch.tensor([10.0, -20.0])
    gradient, velocity = torch.tensor([0.5, 0.5]), torch.zeros(2)
    Sgd(weight_decay=0.1).update(weights, gradient, velocity, 0.2, phi=phi, norm=1.0)
    torch.testing.assert_close(weights, torch.tensor([1.0 - 0.2 * 1.5, 2.0 + 0.2 * 1.5]))
