"""What the neural language model takes: by words of text and sentences, from measured speeds.

A word's gradient is six operations for each weight of the LSTM, and as many for each word of the
vocabulary and cell of the output layer, which runs at another speed
(docs/benchmarks/neural-lm.md#time).
"""

from __future__ import annotations

from pathlib import Path

from hadpsgd.config import Config
from hadpsgd.config.corpus import Builtin
from hadpsgd.config.neural_lm import NeuralLm

LSTM_SPEED, OUTPUT_SPEED = 62e9, 46e9
"""Operations a second of a core in a gradient: 8,989 words a processor second were measured with a
vocabulary of 1,800 words, and 293 with 100,000."""
FORWARD = 0.45
"""Of a gradient's time, to score a word: 0.37 and 0.47 were measured there."""
ADAM = 2.6e-9
"""Seconds of a core for a weight in a step of Adam: 0.068 were measured with 25.7 million."""
OPERATIONS = 6
WORDS_AN_HOUR = 10_000
"""Of conversations (Switchboard: 3.1 million words in some 300 hours)."""
WORDS_A_SENTENCE = 9
"""Of the built-in grammar."""
BYTES_A_WORD = 5.5
"""Of English text."""
VOCABULARY, BUILTIN_VOCABULARY = 30_000, 1_800
"""Words of the lexicon; assumed: nothing is read."""
PIECE_MIB = 256
"""Scores that are held at once (models/loss.py), twice."""


def word_seconds(neural: NeuralLm, words: int) -> float:
    """Of a core, for the gradient of a word with a vocabulary of so many."""
    lstm = neural.layers * 8 * neural.cells**2
    output = neural.cells * words
    return OPERATIONS * (lstm / LSTM_SPEED + output / OUTPUT_SPEED)


def vocabulary_of(config: Config) -> int:
    """Words of a config's lexicon, about."""
    return BUILTIN_VOCABULARY if isinstance(config.corpus, Builtin) else VOCABULARY


def text_words(config: Config, train: float) -> float:
    """Words that the model is trained on: of the texts that are there, else of the speech.

    train: hours of training speech.
    """
    if isinstance(config.corpus, Builtin):
        own = float(config.corpus.lm_sentences * WORDS_A_SENTENCE)
    else:
        given = getattr(config.corpus, "lm_text", None)
        own = _words_of(given) if given else train * WORDS_AN_HOUR
    return own + sum(map(_words_of, config.lm.sources.values()))


def training_seconds(config: Config, neural: NeuralLm, train: float) -> float:
    """Of cores."""
    words = text_words(config, train) * neural.epochs
    steps = words / (WORDS_A_SENTENCE * neural.batch)
    gradients = words * word_seconds(neural, vocabulary_of(config))
    return gradients + steps * ADAM * _parameters(config, neural)


def list_seconds(config: Config, neural: NeuralLm, hours: float) -> float:
    """Of cores, to score the lists of so many decoded hours: all as long as they may be."""
    words = hours * WORDS_AN_HOUR * neural.nbest
    return words * FORWARD * word_seconds(neural, vocabulary_of(config))


def training_gib(config: Config, neural: NeuralLm) -> float:
    """Of a learner: weights with gradient and Adam's two means, and a piece of the scores."""
    return (16 * _parameters(config, neural) / 2**20 + 2 * PIECE_MIB) / 1024


def _parameters(config: Config, neural: NeuralLm) -> int:
    return neural.layers * 8 * neural.cells**2 + neural.cells * vocabulary_of(config)


def _words_of(path: str) -> float:
    """By the size of a text; none where it is not there."""
    file = Path(path)
    return file.stat().st_size / BYTES_A_WORD if file.is_file() else 0.0
