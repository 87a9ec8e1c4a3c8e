"""Masks over training examples: SpecAugment's, and whole i-vectors left out.

SpecAugment (Park et al., "SpecAugment: a simple data augmentation method for automatic speech
recognition", 2019, section 2), without its time warping: a mask is zeros over w neighbouring mel
bins or frames, w drawn evenly from 0 to the widest, its place evenly from all where it fits. Zero
is the mean of normalised features, and of the i-vectors' prior. Labels stay as they are.

What is masked depends on (seed, epoch, number of the example) and nothing else: not on the
minibatch, nor on who trains on it, nor when. So a resumed run, a replay and any learner that
takes the block see the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hadpsgd.config.settings import Settings
from hadpsgd.egs.dataset import Dataset
from hadpsgd.egs.shuffle import mix
from hadpsgd.errors import UserError

_PURPOSE = 0x5A5C  # tells these draws from those of the order of examples
_STEP = np.uint64(0x9E3779B97F4A7C15)  # splitmix64's: draws of an example are far apart
_FRAMEWISE = ("logmel", "fmllr")


class Draws:
    """Numbers for examples, each example's a sequence of its own."""

    def __init__(self, examples: NDArray[np.integer], *, seed: int, epoch: int) -> None:
        """`examples` [n] are their numbers in the data set."""
        words = np.random.SeedSequence([seed, epoch, _PURPOSE]).generate_state(2, np.uint64)
        self._state = mix(mix(examples.astype(np.uint64) ^ words[0]) ^ words[1])

    def uniform(self) -> NDArray[np.float64]:
        """The next of each, in [0, 1), [n]."""
        self._state = self._state + _STEP
        return (mix(self._state) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, bounds: NDArray[np.int64] | int) -> NDArray[np.int64]:
        """The next of each as an integer from 0 to its bound, without that, [n]."""
        return (self.uniform() * bounds).astype(np.int64)


def stretches(draws: Draws, *, masks: int, widest: int, length: int) -> NDArray[np.bool_]:
    """What `masks` masks of up to `widest` cover, [n, length]."""
    places = np.arange(length)
    covered: Any = np.zeros((1, length), np.bool_)
    for _ in range(masks):
        width = draws.below(widest + 1)
        first = draws.below(length - width + 1)
        covered = covered | ((places >= first[:, None]) & (places < (first + width)[:, None]))
    return covered


@dataclass(frozen=True)
class Masks:
    """The masks of a run."""

    settings: Settings
    seed: int
    streams: dict[str, int]
    """Streams of the examples, in their order, and their dimensions."""
    bins: int
    """Mel bins of logmel: it is them, then their deltas."""

    @classmethod
    def of(cls, settings: Settings, seed: int, examples: Dataset) -> Masks | None:
        """Those of a run on these examples; None: it has none.

        Raises:
            UserError: the masks do not fit these examples.
        """
        spec = settings.spec_augment
        if not (spec.frequency_masks or spec.time_masks or settings.ivector_dropout):
            return None
        misfit = spec.misfit(
            examples.streams, bins=examples.bins, frames=examples.frames, normalised=True
        )
        if misfit:
            raise UserError(
                f"training.spec_augment: {misfit}",
                where=examples.folder / "meta.json",
                fix="Run `hadpsgd egs` again",
            )
        return cls(settings, seed, examples.streams, examples.bins)

    def __call__(
        self, features: NDArray[np.float32], *, epoch: int, examples: NDArray[np.integer]
    ) -> None:
        """Mask features [n, frames, dim] of examples [n] in place."""
        for columns, covered in self.covers(features.shape[1], epoch=epoch, examples=examples):
            np.copyto(features[:, :, columns], 0.0, where=covered)

    def covers(
        self, frames: int, *, epoch: int, examples: NDArray[np.integer]
    ) -> Iterator[tuple[slice, NDArray[np.bool_]]]:
        """Columns of the streams that have masks, and what is masked there of examples [n].

        That is [n or 1, frames or 1, columns or 1], for all where it is 1.
        """
        spec = self.settings.spec_augment
        draws = Draws(examples, seed=self.seed, epoch=epoch)
        low = stretches(
            draws, masks=spec.frequency_masks, widest=spec.frequency_width, length=self.bins
        )
        still = stretches(draws, masks=spec.time_masks, widest=spec.time_width, length=frames)
        without = draws.uniform() < self.settings.ivector_dropout
        first = 0
        for name, dim in self.streams.items():
            columns = slice(first, first := first + dim)
            covered = np.zeros((1, 1, 1), np.bool_)
            if name in _FRAMEWISE:
                covered = covered | still[:, :, None]
            if name == "logmel" and spec.frequency_masks:
                covered = covered | np.tile(low, dim // self.bins)[:, None, :]
            if name == "ivector":
                covered = covered | without[:, None, None]
            if covered.any():
                yield columns, covered
