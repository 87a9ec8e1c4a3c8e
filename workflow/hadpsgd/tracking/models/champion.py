"""The best model of an experiment, by the word error rate of the development set."""

from __future__ import annotations

import math
from typing import Any

from hadpsgd.tracking.models import versions

ALIAS = "champion"
MODEL_TAG = "model.id"
"""Of a run: its latest model."""
_DEV = "WER/dev"
_RUNS = 1000  # a page of a search


def choose(client: Any, experiment_id: str) -> None:
    """Let `models:/<experiment>@champion` be the model with the lowest error rate.

    Every champion is a version of the registered model `<experiment>`. Of equal runs the first one
    stays. An experiment without such a run gets none.
    """
    run = _best(client, experiment_id)
    if run is None:
        return
    name = versions.registered_name(client.get_experiment(experiment_id).name)
    model = client.get_logged_model(run.data.tags[MODEL_TAG])
    now = versions.by_alias(client, name, alias=ALIAS)
    if now is not None and now.source == model.artifact_location:
        return
    tags = {"run": run.info.run_name, _DEV: f"{run.data.metrics[_DEV]:.2f}"}
    version = versions.add(client, name, model, tags)
    client.set_registered_model_alias(name, ALIAS, version)


def _best(client: Any, experiment_id: str) -> Any | None:
    """Among trainings that have a model and a word error rate."""
    runs, token = [], None
    while True:
        page = client.search_runs(
            [experiment_id],
            "tags.kind = 'training'",
            max_results=_RUNS,
            order_by=["attributes.start_time ASC"],
            page_token=token,
        )
        runs += [run for run in page if MODEL_TAG in run.data.tags]
        token = page.token
        if not token:
            break
    known = [run for run in runs if not math.isnan(run.data.metrics.get(_DEV, math.nan))]
    return min(known, key=lambda run: run.data.metrics[_DEV], default=None)
