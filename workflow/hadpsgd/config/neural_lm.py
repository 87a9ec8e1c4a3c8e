"""The neural language model that rescores."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hadpsgd.config.base import DECIDES_NOTHING, EachOnce, Section


class NeuralLm(Section):
    """A recurrent language model, trained on the n-gram's text, that rescores n-best lists."""

    layers: int = Field(1, ge=1, le=100)
    """LSTM layers."""
    cells: int = Field(256, ge=1, le=65_536)
    """Cells of a layer, and dimension of embedded words."""
    tied: bool = True
    """One matrix for embedding and output."""
    dropout: float = Field(0.3, ge=0, lt=1)
    """Dropout of embedded words, between layers, and before the output."""
    epochs: int = Field(5, ge=1)
    """Passes over the text. One learner keeps the epoch with the least perplexity on the
    development text; several learners give the mean of their last weights."""
    batch: int = Field(16, ge=1)
    """Sentences of a learner's step, of about equal length; fewer where they are long."""
    learning_rate: float = Field(0.004, gt=0)
    """Adam's at the beginning; it falls to 0 over the epochs as half a cosine."""
    clip_norm: float = Field(1.0, ge=0)
    """Limit to the gradient's norm; 0: none."""
    strategy: Literal["adpsgd", "rand", "d1d", "dpsgd", "ssgd"] = "adpsgd"
    """How several learners train."""
    learners: int = Field(1, ge=1, le=256)
    """Processes that train, on one host."""
    max_oov: float = Field(0.2, ge=0, le=1, json_schema_extra=DECIDES_NOTHING)
    """Share of a text's running words that n-gram and lexicon may lack; more (as in a text of
    another case) stops the training before it begins."""
    threads: int = Field(1, ge=1, le=4096)
    """Cores of a learner; and of what scores with the model."""
    device: Literal["auto", "cpu", "cuda"] = "cpu"
    """Where it is trained. Lists are always scored by the CPU."""
    nbest: int = Field(100, ge=2, le=100_000)
    """Word sequences of an utterance that are scored: so many best ones under the least, the middle
    and the greatest of `scoring.lm_weights`."""
    weights: Annotated[list[Annotated[float, Field(ge=0, le=1)]], EachOnce] = Field(
        [0.0, 0.5, 0.75, 0.9], min_length=1
    )
    """Weights of the neural model tried on the development set, beside `scoring.lm_weights` and
    `scoring.word_penalties`: shares in words' probabilities, the rest is the n-gram's. 0: the
    n-gram alone."""
