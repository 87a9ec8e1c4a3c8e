"""Where one of several processes of a host computes."""

from __future__ import annotations

import os

import torch

from hadpsgd.errors import UserError


def device_of(name: str) -> torch.device:
    """This process's: of the GPUs that it sees, the one of its number on the host."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name != "cuda":
        return torch.device(name)
    if not torch.cuda.is_available():
        raise UserError("torch sees no GPU here", fix="Choose the device cpu")
    local = int(os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID", "0")))
    device = torch.device("cuda", local % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device
