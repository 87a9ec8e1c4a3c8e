"""Versions of registered models."""

from __future__ import annotations

import json
from typing import Any

_LINKS = "mlflow.modelVersions"  # tag of a model by which MLflow's pages find its versions
TAKES_TAG = "takes"
"""Of a model and its version: `recordings` or `features`."""
_WER = "WER/"
_REFUSED = str.maketrans("/:\"'", "____")  # the registry's, and what ends a name in a search


def registered_name(name: str) -> str:
    """A name that MLflow's registry takes and finds."""
    return name.translate(_REFUSED)


def add(client: Any, name: str, model: Any, tags: dict[str, str], run: Any) -> str:
    """Make a logged model a version of the registered model `name`, created where it is missing.

    Args:
        client: MlflowClient.
        name: of the registered model.
        model: MLflow's LoggedModel.
        tags: of the version, beside those of the model that say what it takes.
        run: whose model it is; the version's description has its word error rates.

    Returns:
        The version's number; that of before, where the model is a version already.
    """
    _create(client, name)
    source = model.artifact_location  # `models:/ID` is looked for in the process's own store
    for known in client.search_model_versions(f"name = '{name}'"):
        if known.source == source:
            return known.version
    takes = {name: value for name, value in model.tags.items() if name == TAKES_TAG}
    version = client.create_model_version(
        name,
        source=source,
        run_id=model.source_run_id,
        tags=takes | tags,
        description=_described(run),
        model_id=model.model_id,
    ).version
    links = json.loads(client.get_logged_model(model.model_id).tags.get(_LINKS, "[]"))
    if (name, str(version)) not in [(link["name"], str(link["version"])) for link in links]:
        links.append({"name": name, "version": version})  # servers do it themselves
        client.set_logged_model_tags(model.model_id, {_LINKS: json.dumps(links)})
    return version


def _described(run: Any) -> str | None:
    """Word error rates, the development set's first; None of a run that is not scored."""
    rates = {
        name.removeprefix(_WER): rate
        for name, rate in run.data.metrics.items()
        if name.startswith(_WER)
    }
    names = sorted(rates, key=lambda name: (name != "dev", name))
    told = ", ".join(f"{name} {rates[name]:.2f} %" for name in names)
    return f"Word error rates of {run.info.run_name}: {told}" if told else None


def by_alias(client: Any, name: str, *, alias: str) -> Any | None:
    """The version that has an alias, or None."""
    from mlflow.exceptions import MlflowException

    try:
        return client.get_model_version_by_alias(name, alias)
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None
        raise


def _create(client: Any, name: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
