"""Under which scales and how many word sequences are taken out of a lattice for rescoring."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from hadpsgd.config import Config
from hadpsgd.config.base import LARGEST
from hadpsgd.config.neural_lm import NeuralLm
from hadpsgd.decoding.lattice import Scaling
from hadpsgd.errors import UserError


@dataclass(frozen=True)
class ListSettings:
    """Of each of some language model weights so many best sequences."""

    nbest: int
    lm_weights: tuple[float, ...]
    word_penalty: float

    @classmethod
    def of(cls, config: Config, neural: NeuralLm) -> ListSettings:
        """The least, the middle and the greatest weight that the config tries on dev."""
        weights, penalties = (
            sorted(config.scoring.lm_weights),
            sorted(config.scoring.word_penalties),
        )
        chosen = {weights[0], weights[len(weights) // 2], weights[-1]}
        return cls(neural.nbest, tuple(sorted(chosen)), penalties[len(penalties) // 2])

    @classmethod
    def read(cls, path: Path) -> ListSettings:
        """What `as_json` gave.

        Raises:
            UserError: the file is missing or something else.
        """
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            weights = tuple(map(float, found["lm_weights"]))
            read = cls(int(found["nbest"]), weights, float(found["word_penalty"]))
            if not read.whole:
                raise ValueError("numbers that no list is made with")
            return read
        except FileNotFoundError:
            raise UserError("missing", where=path) from None
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise UserError(f"damaged ({error})", where=path) from None

    @property
    def whole(self) -> bool:
        """Whether a config may say so."""
        weighed = bool(self.lm_weights) and all(0 < weight <= 1000 for weight in self.lm_weights)
        return weighed and 1 <= self.nbest <= LARGEST and abs(self.word_penalty) <= 1000

    @property
    def scalings(self) -> list[Scaling]:
        """As lattices want them."""
        return [
            Scaling(acoustic_scale=1.0 / weight, word_penalty=self.word_penalty)
            for weight in self.lm_weights
        ]

    def as_json(self) -> dict[str, object]:
        """For `tuned.json`."""
        return asdict(self)
