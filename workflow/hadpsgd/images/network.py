"""The network: one of torchvision's, with the first weights of the recipe; its last statistics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from hadpsgd.errors import UserError
from hadpsgd.images.vision import torchvision

HEAD_DEVIATION = 0.01
"""Standard deviation of the last layer's first weights (Goyal et al., section 5.1)."""


def make(name: str, *, classes: int) -> nn.Module:
    """A network by torchvision's name, from torch's random numbers.

    Every residual block begins as the identity: the last gamma of its BatchNorm is zero.

    Raises:
        UserError: torchvision has no classifier of that name.
    """
    models = torchvision().models
    known = models.list_models(module=models)
    if name not in known:
        raise UserError(
            f"torchvision has no classifier '{name}'", fix=f"It has: {', '.join(known)}"
        )
    network: nn.Module = models.get_model(name, num_classes=classes)
    with torch.no_grad():
        for layer in network.modules():
            if isinstance(layer, models.resnet.Bottleneck):
                layer.bn3.weight.zero_()
            elif isinstance(layer, models.resnet.BasicBlock):
                layer.bn2.weight.zero_()
        if isinstance(network, models.ResNet):
            network.fc.weight.normal_(0.0, HEAD_DEVIATION)
            network.fc.bias.zero_()
    return network


def estimate_statistics(
    network: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], device: torch.device
) -> None:
    """Running means and variances of every BatchNorm, anew: their means over training batches.

    The mean of the learners' weights computes something that no learner computed. The mean of their
    statistics is not its: the variance of a mean of networks is no mean of their variances.
    """
    update_bn(_images(batches), network, device=device)


def _images(batches: Iterable[tuple[Tensor, Tensor]]) -> Iterator[Tensor]:
    for images, _ in batches:
        yield images
