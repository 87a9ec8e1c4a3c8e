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
    more = 0.0
    if name in pieces.gaussians and isinstance(config.alignment, Ladder | Mono):
        own = config.alignment
        stage = own.mono_stage if name == "mono" else getattr(own, name)
        more = stage.gaussians - pieces.gaussians[name]
    return pieces.stages[name].seconds(amount, gaussians=more)


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
