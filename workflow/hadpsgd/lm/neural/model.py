"""The network: LSTM layers over embedded words (Sundermeyer, Schluter, Ney, Interspeech 2012)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor, nn

from hadpsgd.errors import UserError
from hadpsgd.files import DAMAGED_ARRAYS, atomic_file
from hadpsgd.lm.neural.words import Words
from hadpsgd.models.loss import linear_cross_entropy

FILE = "model.pt"
_DEVIATION = 0.1


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of the network.

    tied: the output layer has the weights of the embedding (Press and Wolf, 2017).
    """

    layers: int
    cells: int
    tied: bool
    dropout: float


class LstmLm(nn.Module):
    """What comes after each word of sentences."""

    def __init__(self, words: int, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(words, shape.cells)
        nn.init.normal_(self.embedding.weight, std=_DEVIATION)
        between = shape.dropout if shape.layers > 1 else 0.0
        self.lstm = nn.LSTM(
            shape.cells, shape.cells, shape.layers, batch_first=True, dropout=between
        )
        self.dropout = nn.Dropout(shape.dropout)
        self.output = nn.Linear(shape.cells, words)
        nn.init.zeros_(self.output.bias)
        if shape.tied:
            self.output.weight = self.embedding.weight

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy of the words after each, nats; memory has a bound, however many words
        the vocabulary has (`models/loss.py`).

        Args:
            inputs, targets: int64 [sentences, length]; `loss.IGNORE` counts for nothing.
        """
        output = self.output
        return linear_cross_entropy(self.states(inputs), output.weight, output.bias, targets)

    def states(self, inputs: Tensor) -> Tensor:
        """What the output layer gets, float [sentences, length, cells], of int64 [sentences,
        length]; dropout is applied."""
        states, _ = self.lstm(self.dropout(self.embedding(inputs)))
        dropped: Tensor = self.dropout(states)
        return dropped


def save(path: Path, model: LstmLm, words: Words, weights: dict[str, Tensor]) -> None:
    """Write a file with the network, `weights` in it, and its words."""
    content = {
        "shape": asdict(model.shape),
        "words": list(words.names),
        "other": words.other,
        "weights": weights,
    }
    with atomic_file(path) as temporary, temporary.open("wb") as stream:
        torch.save(content, stream)  # not to a path, whose name would be in it


def load(path: Path, device: torch.device | None = None) -> tuple[LstmLm, Words]:
    """What `save` wrote, ready to score.

    Raises:
        UserError: it is missing, or something else.
    """
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        words = Words(tuple(content["words"]), content["other"])
        shape = Shape(**content["shape"])
        if fault := words.fault or _misfit(content["weights"], shape, len(words)):
            raise UserError(f"no neural language model ({fault})", where=path)
        model = LstmLm(len(words), shape)
        model.load_state_dict(content["weights"])
        finite = all(bool(weight.isfinite().all()) for weight in model.parameters())
    except FileNotFoundError:
        raise UserError("missing", where=path, fix="`hadpsgd neural-lm` makes it") from None
    except (*DAMAGED_ARRAYS, AttributeError, IndexError, UnpicklingError) as error:
        what = type(error).__name__  # torch's own texts are many lines
        raise UserError(f"no neural language model ({what})", where=path) from None
    if not finite:
        raise UserError("weights that are not finite", where=path, fix="Train it again")
    return model.to(device or torch.device("cpu")).eval(), words


def _misfit(weights: dict[str, Tensor], shape: Shape, words: int) -> str:
    """How the shape is not that of the weights: it is seen before memory is taken for it."""
    embedded = tuple(weights["embedding.weight"].shape)
    if embedded != (words, shape.cells):
        return f"weights of {embedded} for {words} words and {shape.cells} cells"
    layers = sum(name.startswith("lstm.weight_ih_l") for name in weights)
    return f"weights of {layers} layers for {shape.layers}" if layers != shape.layers else ""
