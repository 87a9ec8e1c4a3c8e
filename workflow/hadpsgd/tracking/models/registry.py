"""Trained models in MLflow: logged with their run, and in the registry."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, TypeAdapter

from hadpsgd import config
from hadpsgd.config import Config, fingerprint
from hadpsgd.errors import UserError
from hadpsgd.files import sha256
from hadpsgd.tracking.checksums import checksum, checksums, combined
from hadpsgd.tracking.models import champion, versions
from hadpsgd.tracking.models.champion import MODEL_TAG

if TYPE_CHECKING:
    from hadpsgd.tracking.models.kinds import Kind

Settings = Mapping[str, Any]
"""Sections of a config by name."""
CHECKSUM_TAG = "model.checksum"
"""Of a run: of all that its model was made from."""
_FORMER_TAG = "model.sha256"  # of runs that a former version sent: of final.pt
_NO_NAME = str.maketrans(dict.fromkeys("/:.%\"'", "_"))  # what MLflow refuses in names of models
_WER, _FINAL = "WER/", "final/"
_SHOWN = (_WER, _FINAL)  # metrics that a model shows, too
_HELD_OUT = "dev"  # the set of the latter


def register(
    client: Any, run_id: str, model: Path, name: str, folder: Path, settings: Settings
) -> None:
    """Log the model of a run and add it as a version of the registered model `name`.

    The same model is logged once. The best model of the experiment is its champion afterwards.

    Args:
        client: MlflowClient.
        run_id: of the run.
        model: `final.pt`, or a copy of it.
        name: of the registered model.
        folder: `RESULTS/NAME/runs/KEY`; scores and graph lie beside `runs/`.
        settings: sections of the config with which the run was decoded and scored, in place of
            those with which its training began.

    Raises whatever MLflow's client raises.
    """
    run = client.get_run(run_id)
    found = _checksum(model, folder, settings)
    if not _is_known(run.data.tags, found, model):
        with _kind(model, folder, settings) as kind:
            logged = _log(client, run, kind, name.translate(_NO_NAME))
        versions.add(client, versions.registered_name(name), logged, {}, run)
        client.set_tag(run_id, MODEL_TAG, logged.model_id)
        client.set_tag(run_id, CHECKSUM_TAG, found)
    champion.choose(client, run.info.experiment_id)


def _is_known(tags: Mapping[str, str], found: str, model: Path) -> bool:
    if CHECKSUM_TAG not in tags and _FORMER_TAG in tags:
        return tags[_FORMER_TAG] == sha256(model)
    return tags.get(CHECKSUM_TAG) == found


def _checksum(model: Path, folder: Path, settings: Settings) -> str:
    """Of what a bundle is made from, as far as it is there."""
    out = folder.absolute().parents[1]
    parts = (
        *(f"score/{folder.name}/{name}" for name in ("tuned.json", "*/wer.json")),
        *("graph", "ali/train/final.mdl", "ali/train/final.alimdl", "ivector/extractor"),
    )
    files = [path.relative_to(out).as_posix() for part in parts for path in out.glob(part)]
    sums = {"model": checksum(model), **checksums(out, files)}
    return combined(sums | ({"settings": fingerprint(_read(settings))} if settings else {}))


def _read(settings: Settings) -> list[BaseModel]:
    """Sections in order of their names."""
    types = {name: Config.model_fields[name].rebuild_annotation() for name in settings}
    return [TypeAdapter(types[name]).validate_python(settings[name]) for name in sorted(settings)]


def _config(folder: Path, settings: Settings) -> Config:
    """The run's own, with the settings of its scores."""
    own = config.load(folder / "config.yaml")
    return own.model_copy(update=dict(zip(sorted(settings), _read(settings), strict=True)))


@contextmanager
def _kind(model: Path, folder: Path, settings: Settings) -> Iterator[Kind]:
    """A bundle where one can be made, else the network alone, and why on standard error."""
    from hadpsgd.scoring.bundle.export import Run, export  # torch: not for a model that is known
    from hadpsgd.tracking.models import kinds

    with tempfile.TemporaryDirectory(prefix="hadpsgd-") as work:
        bundle = Path(work) / "bundle"
        try:
            export(Run.of(folder, _config(folder, settings)), bundle, licence="")
            kind = kinds.recogniser(bundle)
        except UserError as error:
            what = f"{folder.name}: there is no bundle, the network alone is logged"
            print(f"hadpsgd track: {what} ({error})", file=sys.stderr)
            kind = kinds.network(model)
        yield kind


def _log(client: Any, run: Any, kind: Kind, name: str) -> Any:
    """What mlflow.pyfunc.log_model does, without its one store a process; MLflow's LoggedModel.

    Until all of it is there the model is pending, and failed where that ends with an error.
    """
    from mlflow.entities import LoggedModelOutput
    from mlflow.models import Model

    run_id = run.info.run_id
    logged = client.create_logged_model(
        run.info.experiment_id,
        name=name,
        source_run_id=run_id,
        tags={versions.TAKES_TAG: kind.takes},
        params=run.data.params,
        model_type="speech recognition" if kind.takes == "recordings" else "acoustic model",
    )
    model_id = logged.model_id
    try:
        with tempfile.TemporaryDirectory(prefix="hadpsgd-") as work:
            record = Model(
                artifact_path=logged.artifact_location,
                run_id=run_id,
                model_id=model_id,
                model_uuid=model_id,
            )
            kind.save(Path(work) / "model", record)
            client.log_model_artifacts(model_id, str(Path(work) / "model"))
    except BaseException:
        client.finalize_logged_model(model_id, "FAILED")
        raise
    client.log_outputs(run_id, [LoggedModelOutput(model_id, step=0)])
    _show_metrics(client, client.get_run(run_id), model_id)
    return client.finalize_logged_model(model_id, "READY")


def _show_metrics(client: Any, run: Any, model_id: str) -> None:
    """Word error rates of the run are those of its model, each with the set it was measured on.

    By that set MLflow's pages tell a model's data sets.
    """
    from mlflow.entities import Metric

    sets = _sets(run)
    names = [name for name in run.data.metrics if name.startswith(_SHOWN)]
    points = [
        max(client.get_metric_history(run.info.run_id, name), key=lambda p: (p.step, p.timestamp))
        for name in names
    ]
    rows = []
    for point in points:
        on = sets.get(_HELD_OUT if point.key.startswith(_FINAL) else point.key.removeprefix(_WER))
        measured = (on.name, on.digest) if on else (None, None)
        rows.append(
            Metric(point.key, point.value, point.timestamp, point.step, model_id, *measured)
        )
    if rows:
        client.log_batch(run.info.run_id, metrics=rows)


def _sets(run: Any) -> dict[str, Any]:
    """MLflow's Dataset by the name of the set; not those that changed: which one was it?"""
    found: dict[str, list[Any]] = {}
    for each in run.inputs.dataset_inputs if run.inputs else ():
        found.setdefault(each.dataset.name.rpartition("/")[2], []).append(each.dataset)
    return {name: sets[0] for name, sets in found.items() if len(sets) == 1}
