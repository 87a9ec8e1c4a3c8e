"""The settings of one run: the common ones, with what the run has otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hadpsgd.config.changes import changed
from hadpsgd.config.settings import Model, Settings
from hadpsgd.config.training import Run

if TYPE_CHECKING:
    from hadpsgd.config.schema import Config


@dataclass(frozen=True)
class RunSettings:
    """What a run is trained with; nobody asks `config.training` or `config.model` instead."""

    run: Run
    """How its learners work together, and its id."""
    model: Model
    training: Settings
    """Its seed is always given."""
    seed: int
    """Of the first weights, the order of examples, dropout, random schedules."""


def effective(config: Config, run: Run) -> RunSettings:
    """The settings of one of the runs in `config.training.members`."""
    training = changed(config.training.common, run)
    seed = config.seed if training.seed is None else training.seed
    training = training.model_copy(update={"seed": seed})
    return RunSettings(run, changed(config.model, run.model), training, seed)
