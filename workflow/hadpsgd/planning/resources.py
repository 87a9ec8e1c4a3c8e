"""Time and memory that stages ask of a scheduler: more than was measured, by the hours of speech.

A line that was measured (`pieces`) is multiplied by `SAFETY`, since processors, texts and models
differ; what is short asks for its usual least. A job that fails asks for more at the next attempt.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hadpsgd.config import Config
from hadpsgd.planning.amounts import amounts
from hadpsgd.planning.stages import stage_hours, stage_seconds, sums_mib

SAFETY = 3.0

Asked = Callable[..., int]
"""A resource of a rule: a function of wildcards, attempt and threads."""


class StageNeeds:
    """Of a config's stages."""

    def __init__(self, config: Config) -> None:
        speech = amounts(config)
        self._config = config
        self._train = speech.train if speech else 0.0
        """Hours; 0 where nobody knows."""

    def minutes(self, stage: str, least: int) -> Asked:
        """Time limit of a stage, by the name of its log with wildcards in braces."""

        def value(wildcards: Any, attempt: int, threads: int) -> int:
            name = stage.format(**dict(wildcards.items()))
            seconds = stage_seconds(self._config, name, self._hours(name))
            return attempt * max(least, math.ceil(SAFETY * seconds / 60 / threads))

        return value

    def megabytes(self, stage: str, least: int) -> Asked:
        """Memory of a GMM stage: `least`, and the sums of more Gaussians than were measured."""

        def value(wildcards: Any, attempt: int, threads: int) -> int:
            del wildcards
            more = sums_mib(self._config, stage, threads) * 2**20 / 1e6
            return attempt * (least + math.ceil(more))

        return value

    def _hours(self, name: str) -> float:
        return stage_hours(self._config, name, self._train)
