"""Where the stages of our own alignment lie in the results."""

from __future__ import annotations

from hadpsgd.config.schema import Config


def stage_folders(config: Config, out: str) -> dict[str, str]:
    """Folder of each stage that is trained; the last one's is the alignment of train."""
    stages = config.alignment.stages
    folders = {stage: f"{out}/gmm/{stage}" for stage in stages}
    return folders | dict.fromkeys(stages[-1:], f"{out}/ali/train")


def ivector_transform(config: Config, out: str) -> str | list[str]:
    """What i-vectors are estimated on: a final.mat of the config, or the ladder's folder of it.

    Nothing (a PCA is estimated) where there is neither.
    """
    if config.features.ivector.transform:
        return config.features.ivector.transform
    return stage_folders(config, out).get("lda_mllt", [])


def label_folder(config: Config, out: str, passes: int | None = None) -> str:
    """Folder of the alignments after so many passes of realignment; after the last without."""
    after = config.realign.passes if passes is None else passes
    return f"{out}/realign/{after}/ali" if after else f"{out}/ali"


def copies_adapted_by(config: Config, out: str) -> str:
    """Folder of the model that adapts copies of training speech; empty where none does."""
    if config.corpus.versions == 1 or "fmllr" not in config.features.input:
        return ""
    imported = config.features.imports.fmllr
    if imported is None:
        return f"{out}/ali/train"
    return (imported.model or "").replace("{set}", "train")
