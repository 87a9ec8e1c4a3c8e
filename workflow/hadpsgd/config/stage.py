"""A stage of training after cross-entropy, and the run that it makes of another one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field
from typing_extensions import override

from hadpsgd.config.base import Section
from hadpsgd.config.settings import LearningRate
from hadpsgd.config.training import Run

if TYPE_CHECKING:
    from hadpsgd.config.alignment import Egs


class Stage(Section):
    """Sequence training of every run, from its final weights on (docs/sequence-training.md).

    The result is a run of its own: `single-lfmmi` beside `single`. Keys of `training` that do not
    stand here hold for it, too.
    """

    criterion: Literal["lfmmi"] = "lfmmi"
    """Lattice-free maximum mutual information, with a trigram of phones as denominator."""
    frames: int = Field(150, ge=1, le=10_000)
    """Frames of an example; what is left of an utterance is padded."""
    epochs: int = Field(2, ge=1)
    """Passes over the training examples, all learners together."""
    batch: int = Field(32, ge=1)
    """Total batch, in examples of `frames`, over all learners."""
    learning_rate: LearningRate = LearningRate(
        base=0.005, base_batch=32, anneal_after=1, anneal_factor=0.5
    )
    acoustic_scale: float = Field(0.1, ge=0.001, le=10)
    """Factor on the network's log-likelihoods beside those of the phone sequences."""
    cross_entropy: float = Field(0.1, ge=0)
    """Weight of the cross-entropy that is added to the loss; it keeps the network from forgetting
    the alignment."""
    tolerance: int = Field(0, ge=0, le=10_000)
    """Frames that the border of a state may lie beside the alignment's."""

    def examples(self, common: Egs) -> Egs:
        """How its examples are cut, which are else as those before."""
        return common.model_copy(update={"frames": self.frames, "shift": 0})


class StageRun(Run):
    """A run that goes on from the final weights of another one; configs do not have it."""

    after: Run
    """The run before."""
    stage: Stage

    @classmethod
    def of(cls, run: Run, stage: Stage) -> StageRun:
        """What `run` becomes by a stage."""
        own = {"epochs": stage.epochs, "batch": stage.batch, "learning_rate": stage.learning_rate}
        values = {name: getattr(run, name) for name in Run.model_fields}
        return cls.model_construct(**{**values, **own, "after": run, "stage": stage})

    @property
    @override
    def id(self) -> str:
        return f"{self.after.id}-{self.stage.criterion}"

    @property
    @override
    def together(self) -> Run:
        return self.after.together

    @override
    def members(self, seeds: Sequence[int]) -> list[Run]:
        return [StageRun.of(run, self.stage) for run in self.after.members(seeds)]
