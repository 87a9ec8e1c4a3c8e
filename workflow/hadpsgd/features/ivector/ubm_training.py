"""Training of the diagonal UBM (Kaldi's steps/online/nnet2/train_diag_ubm.sh).

Expectation maximisation in memory on a random sample of frames, from half of the Gaussians with
splitting, then some passes over all frames.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from hadpsgd.config.ivector import Ubm
from hadpsgd.errors import UserError
from hadpsgd.features.ivector.ubm import DiagGmm

Matrix = NDArray[np.float32]

_MIN_VARIANCE = 1e-3
_MIN_OCCUPANCY = 10.0
_PERTURB = 0.1
_BLOCK = 4096


class Accumulator:
    """Sums of zeroth, first and second order of every Gaussian."""

    def __init__(self, model: DiagGmm) -> None:
        self.model = model
        self.counts = np.zeros(len(model))
        self.sums = np.zeros((len(model), model.dim))
        self.squares = np.zeros((len(model), model.dim))
        self.log_likelihood = 0.0

    def add(self, features: Matrix) -> None:
        """Count frames [frames, dim] with their posteriors."""
        for start in range(0, len(features), _BLOCK):
            block = features[start : start + _BLOCK]
            scores = self.model.log_likelihoods(block)
            best = scores.max(axis=1, keepdims=True)
            scores -= best
            posteriors = np.exp(scores, out=scores)
            totals = posteriors.sum(axis=1, keepdims=True)
            posteriors /= totals
            self.log_likelihood += float((best + np.log(totals)).sum(dtype=np.float64))
            self.counts += posteriors.sum(axis=0, dtype=np.float64)
            self.sums += posteriors.T @ block
            self.squares += posteriors.T @ np.square(block)

    def update(self, min_weight: float, *, remove: bool) -> DiagGmm:
        """The model of greatest likelihood; Gaussians that see too little are removed or kept."""
        shares = self.counts / self.counts.sum()
        seen = (self.counts > _MIN_OCCUPANCY) & (shares > min_weight)
        counts = np.where(seen, self.counts, 1.0)[:, None]
        means = np.where(seen[:, None], self.sums / counts, self.model.means)
        variances = np.maximum(self.squares / counts - np.square(means), _MIN_VARIANCE)
        variances = np.where(seen[:, None], variances, self.model.variances)
        weights = np.where(seen, shares, np.maximum(shares, min_weight))
        keep = seen if remove and seen.any() else np.ones(len(seen), bool)
        weights = weights[keep] / weights[keep].sum()
        return DiagGmm.from_moments(weights, means[keep], variances[keep])


def split(model: DiagGmm, target: int, random: np.random.Generator) -> DiagGmm:
    """Split the heaviest Gaussians, one after another, until there are `target` of them."""
    weights, means = list(model.weights.astype(float)), list(model.means)
    variances = list(model.variances)
    while len(weights) < target:
        heaviest = int(np.argmax(weights))
        shift = _PERTURB * random.standard_normal(model.dim) * np.sqrt(variances[heaviest])
        weights[heaviest] /= 2
        weights.append(weights[heaviest])
        means.append(means[heaviest] + shift)
        means[heaviest] = means[heaviest] - shift
        variances.append(variances[heaviest])
    return DiagGmm.from_moments(np.array(weights), np.array(means), np.array(variances))


def sample_frames(utterances: Iterable[Matrix], *, count: int, seed: int) -> Matrix:
    """A uniform random sample of frames, at most `count`, in one pass (reservoir sampling)."""
    random = np.random.default_rng(seed)
    kept: Matrix | None = None
    filled, seen = 0, 0
    for features in utterances:
        if kept is None:
            kept = np.empty((count, features.shape[1]), np.float32)
        room = min(count - filled, len(features))
        kept[filled : filled + room] = features[:room]
        filled += room
        rest = features[room:]
        # frame number n (from 1) replaces a random one with probability count / n
        numbers = seen + room + 1 + np.arange(len(rest))
        places = random.integers(0, numbers)
        kept[places[places < count]] = rest[places < count]
        seen += len(features)
    if kept is None:
        raise UserError("no frames to train the UBM on")
    return kept[:filled]


def initial(frames: Matrix, gaussians: int, random: np.random.Generator) -> DiagGmm:
    """Means at random frames, the variance of all frames.

    Raises:
        UserError: under ten frames a Gaussian.
    """
    if len(frames) < 10 * gaussians:
        raise UserError(
            f"{len(frames)} frames are too few for {gaussians} Gaussians of a UBM",
            fix="Lower features.ivector.ubm.gaussians",
        )
    variance = frames.astype(np.float64).var(axis=0)
    means = frames[random.choice(len(frames), gaussians, replace=False)]
    return DiagGmm.from_moments(
        np.full(gaussians, 1 / gaussians), means, np.tile(variance, (gaussians, 1))
    )


def train(options: Ubm, passes: Iterator[Iterable[Matrix]], seed: int) -> DiagGmm:
    """Train a UBM.

    `passes` gives, again and again, all utterances' features [frames, dim] from the beginning.

    Raises:
        UserError: too few frames.
    """
    random = np.random.default_rng([seed, 1])
    frames = sample_frames(next(passes), count=options.sample_frames, seed=seed)
    model = initial(frames, max(1, options.gaussians // 2), random)
    step = -(-(options.gaussians - len(model)) // max(1, options.sample_iterations // 2))
    target = len(model)
    for iteration in range(options.sample_iterations):
        sums = Accumulator(model)
        sums.add(frames)
        model = sums.update(options.min_weight, remove=True)
        target = min(options.gaussians, target + step)
        if iteration + 1 < options.sample_iterations and len(model) < target:
            model = split(model, target, random)
    for iteration in range(options.iterations):
        sums = Accumulator(model)
        for features in next(passes):
            sums.add(features)
        last = iteration + 1 == options.iterations
        model = sums.update(options.min_weight, remove=last)
        share = sums.log_likelihood / sums.counts.sum()
        print(f"ubm: pass {iteration + 1}, log-likelihood a frame {share:.4f}", file=sys.stderr)
    return model
