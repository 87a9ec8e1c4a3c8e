"""Save and load a trained model (`final.pt`)."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hadpsgd.errors import UserError
from hadpsgd.files import atomic_file
from hadpsgd.models.blstm import BLSTM, Shape

FORMAT = 1
"""Version of the file's layout."""


@dataclass(frozen=True, kw_only=True)
class SavedShape:
    """The config's section `model`, as it was when the model was trained."""

    layers: int
    cells: int
    projection: int
    dropout: float
    frames_per_step: int = 1
    """Files written before there were more do not say it."""

    @classmethod
    def of(cls, shape: Shape) -> SavedShape:
        """Take the values from any object that has them."""
        return cls(
            layers=shape.layers,
            cells=shape.cells,
            projection=shape.projection,
            dropout=shape.dropout,
            frames_per_step=shape.frames_per_step,
        )


@dataclass(frozen=True)
class ModelMeta:
    """What a user of a trained model must know beside its weights."""

    model_config: SavedShape
    input_dim: int
    """Values of an input frame."""
    streams: tuple[str, ...]
    """Feature streams fused into the input, in order."""
    num_pdfs: int
    log_priors: Tensor
    """Log of each pdf-id's share of the training frames, float32 [num_pdfs]."""


def log_priors(counts: NDArray[np.int64]) -> Tensor:
    """Log of each pdf-id's share of the frames; one never seen counts as seen once."""
    shares = np.maximum(counts, 1).astype(np.float64)
    return torch.from_numpy(np.log(shares / shares.sum())).float()


def save_model(path: Path, model: BLSTM, meta: ModelMeta) -> None:
    """Write `final.pt` atomically, weights on the CPU.

    Raises:
        ValueError: model and meta do not fit.
    """
    if (meta.input_dim, meta.num_pdfs) != (model.input_dim, model.num_pdfs):
        raise ValueError(f"{meta.input_dim}, {meta.num_pdfs} are not the model's dimensions")
    if meta.log_priors.shape != (meta.num_pdfs,):
        raise ValueError(f"log_priors of shape {tuple(meta.log_priors.shape)}")
    content = {
        "format": FORMAT,
        "model_config": asdict(meta.model_config),
        "input_dim": meta.input_dim,
        "streams": list(meta.streams),
        "num_pdfs": meta.num_pdfs,
        "log_priors": meta.log_priors.detach().cpu().float().clone(),
        "state_dict": {k: v.detach().cpu().clone() for k, v in model.state_dict().items()},
    }
    _write(content, path)


def save_diverged(path: Path, why: str) -> None:
    """Write a `final.pt` that says why there are no weights."""
    _write({"format": FORMAT, "diverged": why}, path)


def _write(content: dict[str, Any], path: Path) -> None:
    # to a stream: given a path, torch writes its name into the file, and equal models differ
    with atomic_file(path) as temporary, temporary.open("wb") as stream:
        torch.save(content, stream)


def why_diverged(path: Path) -> str:
    """Why a `final.pt` has no weights; empty where it has, or is no such file."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        return str(content.get("diverged", ""))
    except Exception:  # of a dozen types: `load_model` names what is wrong
        return ""


def load_model(path: Path, device: torch.device | str = "cpu") -> tuple[BLSTM, ModelMeta]:
    """Read `final.pt`; the model comes back in evaluation mode.

    Raises:
        UserError: no such file, not a model, none because its training diverged, or a layout that
            this version does not know.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError("no such model", where=path, fix="`hadpsgd train` writes it")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        model, meta = _parse(content)
    except UserError as error:
        raise UserError(str(error), where=path) from None
    except Exception as error:  # torch.load raises a dozen types for files cut or of another kind
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"not a trained model ({reason})", where=path, fix="Train again") from None
    return model.to(device).eval(), meta


def weights_of(path: Path) -> str:
    """SHA-256 of a model's weights, whatever the file says beside them; why it has none, where its
    training diverged. Raises as `load_model`."""
    return why_diverged(path) or checksum(load_model(path)[0])


def checksum(model: nn.Module) -> str:
    """SHA-256 of all weights: equal where every bit is."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _parse(content: dict[str, Any]) -> tuple[BLSTM, ModelMeta]:
    if content["format"] != FORMAT:
        raise UserError(
            f"model file of layout {content['format']}, this version reads {FORMAT}",
            fix="Train the model again",
        )
    if "diverged" in content:
        raise UserError(f"there is no model: its training diverged ({content['diverged']})")
    meta = ModelMeta(
        model_config=SavedShape(**content["model_config"]),
        input_dim=content["input_dim"],
        streams=tuple(content["streams"]),
        num_pdfs=content["num_pdfs"],
        log_priors=content["log_priors"],
    )
    model = BLSTM(
        meta.model_config, input_dim=meta.input_dim, num_pdfs=meta.num_pdfs, device="meta"
    )
    model.load_state_dict(content["state_dict"], assign=True)
    if strange := {value.dtype for value in model.state_dict().values()} - {torch.float32}:
        raise ValueError(f"weights in {strange.pop()}")
    priors = meta.log_priors
    if not isinstance(priors, Tensor) or priors.shape != (meta.num_pdfs,):
        raise ValueError(f"no log_priors of {meta.num_pdfs} pdf-ids")
    if not abs(float(priors.double().exp().sum()) - 1) < 0.01:  # nor nan
        raise ValueError("log_priors whose shares do not add up to 1")
    return model, meta
