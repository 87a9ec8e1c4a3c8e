"""Log probabilities of sentences' words under a neural language model."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadpsgd.lm.neural.model import LstmLm
from hadpsgd.lm.neural.text import padded
from hadpsgd.lm.neural.words import BEGIN, END

_LOGITS = 1 << 24
"""Scores of words that are held together: 64 MiB, and their logarithms."""
_SENTENCES = 256
"""Most sentences of a batch."""
_LARGEST = math.log(sys.float_info.max)


def perplexity_of(log_prob: float, *, count: int) -> float:
    """Per word, of all words' log probability in nats; infinite where it is beyond all floats."""
    mean = -log_prob / count
    return math.inf if mean > _LARGEST else math.exp(mean)


@torch.inference_mode()
def log_probs(model: LstmLm, sentences: Sequence[Sequence[int]]) -> list[NDArray[np.float64]]:
    """Of each sentence float64 [words + 1], in nats: its words and its end, each after all words
    before it.

    Args:
        model: which is not training.
        sentences: numbers of words, without beginning and end.
    """
    device, size = model.embedding.weight.device, model.embedding.num_embeddings
    order = sorted(range(len(sentences)), key=lambda number: (len(sentences[number]), number))
    found: list[NDArray[np.float64]] = [np.zeros(0)] * len(sentences)
    while order:
        longest = len(sentences[order[-1]]) + 1
        count = max(1, min(_SENTENCES, _LOGITS // (longest * size)))
        batch, order = order[-count:], order[:-count]
        inputs, targets = padded(
            [torch.tensor([BEGIN, *sentences[number], END]) for number in batch]
        )
        states = model.states(inputs.to(device))
        rows = _picked(model, states, targets.clamp(min=0).to(device)).double().cpu().numpy()
        for number, row in zip(batch, rows, strict=True):
            found[number] = row[: len(sentences[number]) + 1]
    return found


def _picked(model: LstmLm, states: Tensor, words: Tensor) -> Tensor:
    """Log probabilities of words, float [sentences, length]; a long sentence goes through the
    output layer in pieces."""
    step = max(1, _LOGITS // model.output.out_features)
    parts = states.flatten(0, 1).split(step), words.flatten().split(step)
    found = [
        model.output(part).log_softmax(-1).gather(-1, wanted[:, None])[:, 0]
        for part, wanted in zip(*parts, strict=True)
    ]
    return torch.cat(found).view(words.shape)
