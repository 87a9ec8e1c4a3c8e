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
    """Scores of the word after each word of sentences."""

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

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits, float [sentences, length, words], of int64 [sentences, length]."""
        states, _ = self.lstm(self.dropout(self.embedding(inputs)))
        logits: Tensor = self.output(self.dropout(states))
        return logits


def save(path: Path, model: LstmLm, words: Words, weights: dict[str, Tensor]) -> None:
    """Write a file with the network, `weights` in it, and its words."""
    content = {
        "shape": asdict(model.shape),
        "words": list(words.names),
        "other": words.other,
        "weights": weights,
    }
    with atomic_file(path) as temporary:
        torch.save(content, temporary)


def load(path: Path, device: torch.device | None = None) -> tuple[LstmLm, Words]:
    """What `save` wrote, ready to score.

    Raises:
        UserError: it is missing, or something else.
    """
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        words = Words(tuple(content["words"]), content["other"])
        model = LstmLm(len(words), Shape(**content["shape"]))
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
