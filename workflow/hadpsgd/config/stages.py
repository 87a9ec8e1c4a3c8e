"""What each stage depends on: a change elsewhere in the config does not rerun it."""

from __future__ import annotations

from pydantic import BaseModel

from hadpsgd.config.load import fingerprint
from hadpsgd.config.schema import Config
from hadpsgd.config.training import Run
from hadpsgd.errors import UserError


def stage_fingerprints(config: Config) -> dict[str, str]:
    """Hash of the settings of every stage before training and after it."""
    rate = config.features.sample_rate
    parts: dict[str, list[BaseModel | str | int]] = {
        "corpus": [config.corpus, config.seed, rate],
        "lang": [config.alignment, config.lang],
        "features": [
            config.features.logmel,
            config.features.mfcc,
            config.features.imports,
            str(config.features.dither),
            rate,
        ],
        "ivector": [config.features.ivector, config.features.imports, config.seed],
        "alignment": [config.alignment, config.seed],
        "egs": [config.egs, config.features, config.seed],
        "lm": [config.lm],
        "graph": [config.graph],
        "decoding": [config.decoding, config.features],
        "scoring": [config.scoring],
    }
    return {stage: fingerprint(sections) for stage, sections in parts.items()}


def run_fingerprint(config: Config, run_id: str) -> str:
    """Hash of what decides a training run's weights, data aside."""
    training = config.training.model_copy(update={"runs": [run_of(config, run_id)]})
    housekeeping = ("checkpoint_minutes", "keep_checkpoints", "rendezvous_seconds", "cluster")
    settings = training.model_dump_json(exclude=set(housekeeping))
    return fingerprint([settings, config.model, config.egs, config.seed])


def run_of(config: Config, run_id: str) -> Run:
    """The training run of that name.

    Raises:
        UserError: the config has no such run.
    """
    for run in config.training.runs:
        if run.id == run_id:
            return run
    names = ", ".join(run.id for run in config.training.runs)
    raise UserError(f"no training run '{run_id}' in config '{config.name}'", fix=f"It has: {names}")
