"""Where runs are tracked."""

from __future__ import annotations

from pydantic import Field

from hadpsgd.config.base import Section


class Tracking(Section):
    """MLflow."""

    uri: str = "sqlite:///mlflow.db"
    """Tracking store; the environment variable MLFLOW_TRACKING_URI goes before it."""
    experiment: str = Field("", max_length=200)
    """Experiment; the config's name where it is empty."""
    every_seconds: float = Field(5.0, gt=0)
    """Seconds between points of the training curves."""
