"""What is recorded of a training run, as events."""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hadpsgd.config import Config, fingerprint, row_of, run_fingerprint, run_key, settings_of
from hadpsgd.config.command import resolved
from hadpsgd.config.decoding import OF_ENSEMBLES
from hadpsgd.files import write_text
from hadpsgd.tracking import datasets, provenance
from hadpsgd.tracking.events import Artifact, Begin, Event, Metrics, Params, Point, Tags
from hadpsgd.tracking.identity import Identity
from hadpsgd.tracking.metrics_file import Row
from hadpsgd.tracking.uri import experiment_name

CONFIG = "config.yaml"
STATUS = "status"
"""Tag: finished, diverged, failed or not finished."""
WHY = "status_why"
"""Tag: of a run that diverged or failed."""
FINAL = "final"
"""Prefix of the final model's metrics."""
OF_FINAL = ("heldout_loss", "heldout_accuracy")
"""Of summary.json."""
FORMER = "former_run"
"""Tag: key of the run from whose checkpoints this one went on, where it is not its own."""
PROVENANCE = (CONFIG, provenance.FILE, provenance.DIFF)


def parameters(config: Config, run_id: str) -> dict[str, str]:
    """The resolved config as flat names: `model.` and `training.` as this run has them, how its
    learners work together under `run.`."""
    settings = settings_of(config, run_id)
    values = config.model_dump(mode="json", exclude={"results", "tracking", "site"})
    for name in OF_ENSEMBLES:
        del values["decoding"][name]
    values["model"] = settings.model.model_dump(mode="json")
    values["training"] = settings.training.model_dump(mode="json")
    values["run"] = settings.run.together.model_dump(mode="json", exclude={"name"})
    return dict(flatten(values))


def flatten(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """`{"a": {"b": 1}}` as `("a.b", "1")`."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value)
            yield prefix + name, text


def run_name(config: Config, run_id: str) -> str:
    """Name in the store's lists: the run, after its config where an experiment mixes configs."""
    return run_id if experiment_name(config) == config.name else f"{config.name}/{run_id}"


def tags(config: Config, run_id: str) -> dict[str, str]:
    """What runs are searched and grouped by."""
    settings = settings_of(config, run_id)
    run = settings.run
    return {
        "kind": "training",
        "corpus": config.corpus.kind,
        "strategy": run.strategy,
        "learners": str(run.learners),
        "time": "virtual" if run.simulated else "real",
        "super_learner": str(run.super_learner),
        "schedule": run.schedule,
        "batch": str(settings.training.batch),
        "seed": str(settings.seed),
        "config": config.name,
        "config_hash": fingerprint([config]),
        "run": run_id,
        "row": row_of(config, run_id),
        "run_key": run_key(config, run_id),
        "run_hash": run_fingerprint(config, run_id),
    }


def user() -> str:
    """Who runs this process; empty where the system has no name for the number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def write_provenance(
    config: Config, folder: Path, torchs: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Collect provenance into a run's folder, with the config and the uncommitted diff.

    The first attempt's stays when training is resumed: it is where the weights began.
    torchs: `arithmetic.of_torch()` of the training, where another process collects.
    """
    found = provenance.read(folder)
    if found:
        return found
    found = provenance.collect(config, torchs)
    write_text(folder / CONFIG, resolved(config))
    if found["code"]["dirty"]:
        write_text(folder / provenance.DIFF, provenance.diff())
    write_text(folder / provenance.FILE, json.dumps(found, indent=2) + "\n")
    return found


def description(config: Config, run_id: str, *, table: str) -> str:
    """What MLflow shows above a run's page: which run of which config, and that one's table."""
    run = settings_of(config, run_id).run
    learners = "1 learner" if run.learners == 1 else f"{run.learners} learners"
    return f"Run `{run_id}` of config `{config.name}`: {run.strategy}, {learners}.\n\n{table}"


def begin(config: Config, run_id: str, folder: Path, identity: Identity) -> Iterator[Event]:
    """The run, its parameters, tags and provenance; `folder` is where provenance lies."""
    yield Begin(
        name=run_name(config, run_id),
        experiment=experiment_name(config),
        time_ms=int(identity.created * 1000),
        user=user(),
    )
    yield Params(values=parameters(config, run_id))
    found = provenance.read(folder)
    if found:
        yield from datasets.trained_on(config, found["data"])
    yield Tags(values=tags(config, run_id) | (provenance.tags(found) if found else {}))
    if identity.former:
        yield Tags(values={FORMER: identity.former})
    for name in PROVENANCE:
        if (folder / name).is_file():
            yield Artifact(path=str((folder / name).absolute()), folder="provenance")


def final_model(summary: Row, time_ms: int) -> Metrics:
    """What training measured of the final model, the mean of all learners, as `final/<name>`.

    The curves have the mean over learners of each one's own weights. No points where it diverged.
    """
    values = {name: summary[name] for name in OF_FINAL if name in summary}
    points = [
        Point(name=f"{FINAL}/{name}", value=float(value), step=0, time_ms=time_ms)
        for name, value in values.items()
    ]
    return Metrics(points=points, replace=True)
