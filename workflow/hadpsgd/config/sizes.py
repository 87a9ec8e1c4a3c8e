"""Network, alignment and epochs that fit the hours of training speech.

The first row was tried on a minute of speech; the second is config/children.yaml and
config/an4_full.yaml; the third has been tried on 2.5 hours; the last is that of the papers on 300
hours of Switchboard (arXiv 1907.05701), with the leaves and Gaussians of Kaldi's egs/swbd/s5c.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

REPEATED_FRAMES = 42
"""Of a subsequence where they overlap by half."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """What a config says otherwise for little speech than for much."""

    hours: float
    """Of training speech, less than this."""
    layers: int
    cells: int
    projection: int
    dropout: float
    epochs: int
    batch: int
    rate: float
    """Learning rate at first; a higher one needs fewer epochs
    (docs/benchmarks/small-data.md#learning-rate)."""
    anneal_after: int
    anneal_factor: float
    mono: int
    """Gaussians of monophones."""
    leaves: int = 0
    """Of triphones; 0 stays with monophones."""
    gaussians: int = 0
    """Of triphones."""
    weight_decay: float = 0.0
    adapted: bool = False
    """Whether features are adapted to the speaker: fMLLR and i-vectors beside log mel energies."""
    little: bool = False
    """Whether there is dropout of whole examples and of i-vectors, a neural language model, and a
    row for the GMM-HMM (docs/benchmarks/small-data.md#two-and-a-half-hours)."""
    whole: bool = False
    """Whether the whole recipe for little speech is taken (config/children.yaml): masks,
    lattice-free MMI and minimum Bayes risk, too."""
    repeats: bool = False
    """Whether subsequences overlap by half."""
    tempos: tuple[float, ...] = (1.0,)
    """Of features, stretched without audio."""
    speeds: tuple[float, ...] = (1.0,)
    """Of audio, with the pitch, as if other people spoke: what few speakers need."""
    retry_beam: float = 40.0
    """Of alignment; GMMs of a few minutes of speech fit other speakers badly."""

    @property
    def copies(self) -> int:
        """How often each frame is seen in an epoch."""
        return (2 if self.repeats else 1) * len(self.tempos) * len(self.speeds)


ROWS = (
    Size(
        hours=0.25, layers=2, cells=64, projection=64, dropout=0.5, epochs=6, batch=16,
        rate=0.1, anneal_after=3, anneal_factor=0.5, mono=500, weight_decay=0.003, repeats=True,
        speeds=(0.8, 0.9, 1.0, 1.1, 1.2), retry_beam=1000,
    ),
    Size(
        hours=2, layers=2, cells=128, projection=128, dropout=0.3, epochs=5, batch=32,
        rate=0.2, anneal_after=2, anneal_factor=0.5, mono=1000, leaves=500, gaussians=5000,
        repeats=True, tempos=(0.9, 1.0, 1.1), adapted=True, little=True, whole=True,
    ),
    Size(
        hours=10, layers=3, cells=192, projection=192, dropout=0.2, epochs=10, batch=64,
        rate=0.1, anneal_after=5, anneal_factor=0.5, mono=1000, leaves=1200, gaussians=12000,
        adapted=True, little=True,
    ),
    Size(
        hours=100, layers=4, cells=384, projection=256, dropout=0.1, epochs=14, batch=128,
        rate=0.1, anneal_after=8, anneal_factor=0.6, mono=1000, leaves=3000, gaussians=40000,
        adapted=True,
    ),
    Size(
        hours=math.inf, layers=6, cells=512, projection=256, dropout=0.0, epochs=16, batch=256,
        rate=0.1, anneal_after=10, anneal_factor=0.7071, mono=1000, leaves=8000, gaussians=140000,
        adapted=True,
    ),
)  # fmt: skip


_STEPS = 600
"""Gradients that a network needs at least, of however little speech; with many more it learns the
few speakers by heart."""
_EPOCHS = (4, 20)
_LAST_RATE = 0.12
"""Of the first learning rate, after the last epoch."""
_FRAMES_AN_HOUR = 360_000
_GAUSSIANS_A_MINUTE = 50
_FEWEST_GAUSSIANS = 100


def size_for(hours: float) -> Size:
    """The row for so many hours of training speech; epochs of the first one grow as they fall."""
    row = next(row for row in ROWS if hours < row.hours)
    if row is not ROWS[0]:
        return row
    frames = hours * _FRAMES_AN_HOUR * row.copies
    steps = frames / (row.batch * REPEATED_FRAMES)
    epochs = min(max(math.ceil(_STEPS / max(steps, 1)), _EPOCHS[0]), _EPOCHS[1])
    after = epochs // 2
    gaussians = max(_FEWEST_GAUSSIANS, round(_GAUSSIANS_A_MINUTE * 60 * hours))
    return replace(
        row,
        epochs=epochs,
        anneal_after=after,
        anneal_factor=round(_LAST_RATE ** (1 / (epochs - after)), 3),
        mono=min(row.mono, gaussians),
    )


_WORDS_READ = 1_000_000
_NEURAL_EPOCHS = (4, 20)
_SHORT_TEXT = 50_000


def neural_epochs(words: int) -> int:
    """Passes of the neural language model over a text of so many words."""
    fewest, most = _NEURAL_EPOCHS
    return min(max(round(_WORDS_READ / max(words, 1)), fewest), most)


def neural_dropout(words: int) -> float:
    """Its dropout: a short text is learnt by heart with less (docs/benchmarks/neural-lm.md)."""
    return 0.5 if words < _SHORT_TEXT else 0.3
