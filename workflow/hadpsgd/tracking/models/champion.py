"""The best model of an experiment, by the word error rate of the development set."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from hadpsgd.tracking.models import versions

ALIAS = "champion"
MODEL_TAG = "model.id"
"""Of a run: its latest model."""
DEV_SET_TAG = "dev_set"
"""Of a run: equal where error rates of `dev` can be compared."""
_DEV = "WER/dev"
_SCORED = f"tags.kind = 'training' AND tags.`{MODEL_TAG}` LIKE '%' AND metrics.`{_DEV}` >= 0"
_RUNS = 10  # a page of a search; mostly the first one's model is there


def choose(client: Any, experiment_id: str) -> None:
    """Let `models:/<experiment>@champion` be the model with the lowest error rate.

    Every champion is a version of the registered model `<experiment>`. Of equal runs the first one
    stays. Runs with another development set or scoring than the newest one do not count, nor does
    one whose model was deleted. An experiment without such a run gets none.
    """
    for run in _best_first(client, experiment_id):
        model = _model(client, run.data.tags[MODEL_TAG])
        if model is not None:
            _appoint(client, experiment_id, run, model)
            return


def _appoint(client: Any, experiment_id: str, run: Any, model: Any) -> None:
    name = versions.registered_name(client.get_experiment(experiment_id).name)
    now = versions.by_alias(client, name, alias=ALIAS)
    if now is not None and now.source == model.artifact_location:
        return
    tags = {"run": run.info.run_name, _DEV: f"{run.data.metrics[_DEV]:.2f}"}
    version = versions.add(client, name, model, tags, run)
    client.set_registered_model_alias(name, ALIAS, version)


def _best_first(client: Any, experiment_id: str) -> Iterator[Any]:
    """Trainings with a model and a word error rate on the newest one's development set."""
    newest = client.search_runs(
        [experiment_id], _SCORED, max_results=1, order_by=["attributes.start_time DESC"]
    )
    dev_set = newest[0].data.tags.get(DEV_SET_TAG) if newest else None
    if dev_set is None:
        return
    token = None
    while True:
        page = client.search_runs(
            [experiment_id],
            f"{_SCORED} AND tags.`{DEV_SET_TAG}` = '{dev_set}'",
            max_results=_RUNS,
            order_by=[f"metrics.`{_DEV}` ASC", "attributes.start_time ASC"],
            page_token=token,
        )
        yield from (run for run in page if not math.isnan(run.data.metrics[_DEV]))
        token = page.token
        if not token:
            return


def _model(client: Any, model_id: str) -> Any | None:
    """None where somebody deleted it."""
    from mlflow.exceptions import MlflowException

    try:
        return client.get_logged_model(model_id)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise
