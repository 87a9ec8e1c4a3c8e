"""What each stage before training takes, by hours of speech: lines that were measured, continued.

Snakemake reads this for every job: nothing large is imported.
"""

from __future__ import annotations

from fnmatch import fnmatch

from hadpsgd.config import Config
from hadpsgd.config.alignment import Ladder, Mono
from hadpsgd.planning.pieces import measured

GROUPS = {
    "corpus": ("dictionary", "lang", "corpus.train", "words.train", "perturb"),
    "features": ("features.logmel.train", "features.mfcc.train"),
    "alignment": ("mono", "tri", "lda_mllt", "sat"),
    "FMLLR": ("fmllr.*.train*", "features.fmllr.train", "fmllr.adapt_perturbed"),
    "i-vectors": ("ubm", "ivector_train", "features.ivector.train"),
    "examples": ("egs.train",),
}
"""Stages whose work follows the hours of training speech, by the names of their logs."""
GAUSSIAN_BYTES = 8 * (1 + 2 * 40)
"""Of the sums of a Gaussian with 40 features."""
MOST_PROCESSES = 64
"""That have something to do in a pass of a GMM stage."""


def stages_of(config: Config, group: str) -> list[str]:
    """Names of the stages of a group that were measured and that the config has."""
    names = (n for n in measured().stages if any(fnmatch(n, p) for p in GROUPS[group]))
    return [name for name in names if _is_part(config, name)]


def stage_hours(config: Config, name: str, train: float) -> float:
    """Hours of speech that a stage goes through: all its copies but for the ladder's."""
    return train if name in GROUPS["alignment"] else train * config.corpus.versions


def stage_seconds(config: Config, name: str, amount: float) -> float:
    """Of a processor; 0 of a stage that was not measured."""
    pieces = measured()
    if name not in pieces.stages:
        return 0.0
    return pieces.stages[name].seconds(amount, gaussians=_more_gaussians(config, name))


def sums_mib(config: Config, name: str, processes: int) -> float:
    """Memory of the sums of the Gaussians beyond those that a stage was measured with.

    Each process holds them once, the parent twice (`gmm/partial_sums.py`).
    """
    held = min(processes, MOST_PROCESSES) + 2
    return max(0.0, _more_gaussians(config, name)) * GAUSSIAN_BYTES * held / 2**20


def _more_gaussians(config: Config, name: str) -> float:
    pieces = measured()
    if name not in pieces.gaussians or not isinstance(config.alignment, Ladder | Mono):
        return 0.0
    own = config.alignment
    stage = own.mono_stage if name == "mono" else getattr(own, name)
    return float(stage.gaussians - pieces.gaussians[name])


def _is_part(config: Config, name: str) -> bool:
    """Whether the config has such a stage."""
    streams = config.features.input
    if name in GROUPS["alignment"]:
        match config.alignment:
            case Mono():
                return name == "mono"
            case Ladder() as ladder:
                return name in ladder.stages
        return False
    if "fmllr" in name:
        return "fmllr" in streams
    if name in ("ubm", "ivector_train") or "ivector" in name:
        return "ivector" in streams
    return True
