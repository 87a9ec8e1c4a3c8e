"""Modules that cannot be trained this way, refused before anything runs."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.parameter import is_lazy

from hadpsgd.errors import UserError


def check_module(module: nn.Module) -> None:
    """Refuse what flat buffers cannot hold.

    Raises:
        UserError: names the layer or parameter, and says what to do.
    """
    for name, layer in module.named_modules():
        if isinstance(layer, DataParallel | DistributedDataParallel):
            raise UserError(
                f"{type(layer).__name__} shares gradients itself", fix="Give its module"
            )
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.sparse:
            raise UserError(f"layer {name} has sparse gradients", fix="Make it with sparse=False")
    named = [*module.named_parameters(), *module.named_buffers()]
    for name, tensor in named:
        if is_lazy(tensor):
            raise UserError(f"{name} has no shape yet", fix="Run the model once before")
        if hasattr(tensor, "device_mesh"):
            raise UserError(f"{name} is divided among devices (DTensor)", fix="Give whole tensors")
    learning = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    for name, p in learning:
        if p.device != learning[0][1].device:
            raise UserError(
                f"parameters lie on different devices: {learning[0][0]} on "
                f"{learning[0][1].device}, {name} on {p.device}",
                fix="Move the model to one device",
            )
    for name, tensor in named:
        if tensor.is_meta:
            raise UserError(
                f"{name} has no numbers yet (device meta)", fix="Call model.to_empty(device=...)"
            )
    _check_overlap(named)


def _check_overlap(named: list[tuple[str, Tensor]]) -> None:
    """Two tensors in one piece of memory would be torn apart."""
    spans = sorted(
        (t.data_ptr(), t.data_ptr() + t.numel() * t.element_size(), name, t.requires_grad)
        for name, t in named
        if t.numel()
    )
    for (_, end, first, learns), (begin, _, second, also) in pairwise(spans):
        if begin < end and (learns or also):
            raise UserError(
                f"{first} and {second} overlap in memory",
                fix="Tie weights by giving both layers one Parameter",
            )
