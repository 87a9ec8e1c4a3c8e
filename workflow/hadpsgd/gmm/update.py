"""Maximum-likelihood updates: mixtures, splitting, transitions (Kaldi's gmm-est)."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hadpsgd.gmm import diag_gmm
from hadpsgd.gmm.diag_gmm import Mixtures
from hadpsgd.gmm.statistics import Statistics
from hadpsgd.gmm.transition_model import TransitionModel

MIN_WEIGHT = 1e-5
MIN_VARIANCE = 1e-3
PERTURB = 0.01
MIN_SPLIT_COUNT = 20.0
TRANSITION_FLOOR = 0.01
MIN_TRANSITION_COUNT = 5.0


@dataclass(frozen=True, kw_only=True)
class Growth:
    """How mixtures grow: Gaussians in total, and the power of counts by which pdfs get them.

    min_occupancy, prior: see `estimate`.
    """

    gaussians: int
    power: float = 0.25
    min_occupancy: float = 10.0
    prior: float = 0.0


def update(
    mixtures: Mixtures, sums: Statistics, growth: Growth, random: np.random.Generator
) -> Mixtures:
    """Re-estimate all mixtures, drop Gaussians with too few frames, split up to the total."""
    estimated = estimate(mixtures, sums, growth.min_occupancy, prior=growth.prior)
    counts = mixtures.per_pdf(sums.occupancy)
    targets = split_targets(counts, gaussians=growth.gaussians, power=growth.power)
    return split(estimated, targets, random)


def estimate(
    mixtures: Mixtures, sums: Statistics, min_occupancy: float = 10.0, *, remove: bool = True,
    prior: float = 0.0,
) -> Mixtures:  # fmt: skip
    """Weights, means and variances from statistics (Kaldi's MleDiagGmmUpdate).

    A Gaussian of fewer frames is removed, unless it is the last of its pdf (or `remove` is
    false): then it is kept as it was. Variances are drawn to their mean over the pdf's Gaussians
    as by so many frames as `prior` says: those of few frames would be too narrow.
    """
    pdf_of = mixtures.pdf_of
    totals = mixtures.per_pdf(sums.occupancy)
    sizes = np.diff(mixtures.offsets)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(totals[pdf_of] > 0, sums.occupancy / totals[pdf_of], 1 / sizes[pdf_of])
        means = sums.first / sums.occupancy[:, None]
        variances = sums.second / sums.occupancy[:, None] - means**2
    variances = _drawn_together(variances, sums.occupancy, mixtures, prior)
    enough = (sums.occupancy > min_occupancy) & (share > MIN_WEIGHT)
    # of a pdf without any Gaussian that has enough frames, the fullest one stays
    none = mixtures.per_pdf(enough.astype(np.float64)) == 0
    kept = enough.copy() if remove else np.ones_like(enough)
    for pdf in np.flatnonzero(none):
        begin, end = mixtures.offsets[pdf], mixtures.offsets[pdf + 1]
        kept[begin + int(np.argmax(sums.occupancy[begin:end]))] = True
    means = np.where(enough[:, None], means, mixtures.means)[kept]
    variances = np.where(enough[:, None], variances, mixtures.variances)[kept]
    weights = share[kept]
    new_sizes = np.bincount(pdf_of[kept], minlength=mixtures.num_pdfs)
    weights /= np.repeat(_sums(weights, new_sizes), new_sizes)
    return diag_gmm.make(new_sizes, weights, means, np.maximum(variances, MIN_VARIANCE))


def _drawn_together(
    variances: NDArray[np.float64],
    occupancy: NDArray[np.float64],
    mixtures: Mixtures,
    prior: float,
) -> NDArray[np.float64]:
    """Maximum a posteriori variances, about the mean of those of a pdf's Gaussians."""
    weighted = np.where(occupancy[:, None] > 0, variances * occupancy[:, None], 0.0)
    totals = np.maximum(mixtures.per_pdf(occupancy), 1e-10)[:, None]
    shared = np.add.reduceat(weighted, mixtures.offsets[:-1], axis=0) / totals
    return (weighted + prior * shared[mixtures.pdf_of]) / np.maximum(occupancy + prior, 1e-10)[
        :, None
    ]


def _sums(values: NDArray[np.float64], sizes: NDArray[np.integer]) -> NDArray[np.float64]:
    return np.add.reduceat(values, np.concatenate([[0], np.cumsum(sizes)[:-1]]))


def split_targets(
    counts: NDArray[np.float64], *, gaussians: int, power: float
) -> NDArray[np.int64]:
    """Gaussians for each pdf, by count to a power (Kaldi's GetSplitTargets)."""
    targets = np.ones(len(counts), np.int64)
    weights = np.power(counts, power)
    queue = [(-weight, pdf) for pdf, weight in enumerate(weights) if weight > 0]
    heapq.heapify(queue)
    total = len(counts)
    while total < gaussians and queue:
        _, pdf = heapq.heappop(queue)
        if (targets[pdf] + 1) * MIN_SPLIT_COUNT >= counts[pdf]:
            continue  # too few frames for one more
        targets[pdf] += 1
        total += 1
        heapq.heappush(queue, (-weights[pdf] / targets[pdf], pdf))
    return targets


def split(
    mixtures: Mixtures, targets: NDArray[np.integer], random: np.random.Generator
) -> Mixtures:
    """Split the heaviest Gaussian of a pdf, again and again, up to its target."""
    means, variances = mixtures.means.astype(np.float64), mixtures.variances.astype(np.float64)
    weights = mixtures.weights.astype(np.float64)
    sizes, parts_of_weights, sources, shifts = [], [], [], []
    for pdf in range(mixtures.num_pdfs):
        begin, end = int(mixtures.offsets[pdf]), int(mixtures.offsets[pdf + 1])
        share, source = list(weights[begin:end]), list(range(begin, end))
        shift = [np.zeros(mixtures.dim) for _ in source]
        while len(share) < targets[pdf]:
            heaviest = int(np.argmax(share))
            share[heaviest] /= 2
            share.append(share[heaviest])
            source.append(source[heaviest])
            step = PERTURB * random.standard_normal(mixtures.dim)
            shift.append(shift[heaviest] - step)
            shift[heaviest] = shift[heaviest] + step
        sizes.append(len(share))
        parts_of_weights += share
        sources += source
        shifts += shift
    moved = means[sources] + np.array(shifts) * np.sqrt(variances[sources])
    return diag_gmm.make(sizes, np.array(parts_of_weights), moved, variances[sources])


def update_transitions(model: TransitionModel, counts: NDArray[np.float64]) -> TransitionModel:
    """Probabilities from counts of transition-ids, floored (TransitionModel::MleUpdate)."""
    groups = model.state_of_id[1:]
    size = len(model.tuples)
    totals = np.bincount(groups, counts[1:], size)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = counts[1:] / totals[groups]
    for _ in range(3):  # floor and renormalise a few times, as Kaldi does
        shares = shares / np.bincount(groups, shares, size)[groups]
        shares = np.maximum(shares, TRANSITION_FLOOR)
    shares /= np.bincount(groups, shares, size)[groups]
    alone = np.bincount(groups, minlength=size)[groups] == 1
    enough = (totals[groups] >= MIN_TRANSITION_COUNT) & ~alone
    log_probs = model.log_probs.copy()
    log_probs[1:] = np.where(enough, np.log(np.where(enough, shares, 1.0)), log_probs[1:])
    return model.with_log_probs(log_probs)


def scaled_scores(
    model: TransitionModel, *, transition_scale: float = 1.0, self_loop_scale: float = 0.1
) -> NDArray[np.float32]:
    """[ids + 1]: log-probabilities scaled as Kaldi's AddTransitionProbs; entry 0 is 0.

    The probability of leaving a state is split from the choice among the ways that leave it.
    """
    scores = model.log_probs.astype(np.float64)
    loops = np.flatnonzero(model.is_self_loop)
    stay = np.zeros(len(model.tuples))
    stay[model.state_of_id[loops]] = np.exp(scores[loops])
    leave = np.log(np.maximum(1.0 - stay, 1e-10))[model.state_of_id]
    choice = self_loop_scale * leave + transition_scale * (scores - leave)
    result = np.where(model.is_self_loop, self_loop_scale * scores, choice)
    result[0] = 0.0
    return result.astype(np.float32)
