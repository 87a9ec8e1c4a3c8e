"""Trained models in MLflow's registry, with their signature and an example of their use."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import hadpsgd
from hadpsgd.files import sha256
from hadpsgd.models.build import ModelMeta, load_model
from hadpsgd.tracking import provenance

ARTIFACT = "model"
_CHECKSUM_TAG = "model.sha256"
_EXAMPLE_FRAMES = 21
_NEEDED = ("torch", "numpy", "pydantic")


def register(client: Any, run_id: str, model: Path, name: str) -> None:
    """Add `final.pt` as a new version of the registered model `name`.

    The same file of the same run is registered once. Raises whatever MLflow's client raises.
    """
    checksum = sha256(model)
    if client.get_run(run_id).data.tags.get(_CHECKSUM_TAG) == checksum:
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / ARTIFACT
        save(folder=folder, model=model)
        client.log_artifacts(run_id, str(folder), ARTIFACT)
    _create_registered(client, name)
    client.create_model_version(name, source=f"runs:/{run_id}/{ARTIFACT}", run_id=run_id)
    client.set_tag(run_id, _CHECKSUM_TAG, checksum)


def save(*, folder: Path, model: Path) -> None:
    """Write the model as MLflow's pyfunc, our package inside, so that it loads anywhere."""
    import mlflow.pyfunc
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    _, meta = load_model(model)
    frames = TensorSpec(np.dtype(np.float32), (-1, -1, meta.input_dim))
    scores = TensorSpec(np.dtype(np.float32), (-1, -1, meta.num_pdfs))
    versions = provenance.packages()
    mlflow.pyfunc.save_model(
        str(folder),
        loader_module="hadpsgd.tracking.served_model",
        data_path=str(model),
        code_paths=[str(Path(hadpsgd.__file__).parent)],
        signature=ModelSignature(inputs=Schema([frames]), outputs=Schema([scores])),
        input_example=example(meta),
        pip_requirements=[f"{package}=={versions[package]}" for package in _NEEDED],
    )


def example(meta: ModelMeta) -> np.ndarray:
    """An input: one subsequence of normalised features, float32 [1, 21, input_dim]."""
    shape = (1, _EXAMPLE_FRAMES, meta.input_dim)
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _create_registered(client: Any, name: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
