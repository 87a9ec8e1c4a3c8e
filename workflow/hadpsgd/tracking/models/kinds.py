"""What is logged of a trained model: all that recognises speech or, without that, the network."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from hadpsgd.models.build import load_model
from hadpsgd.scoring.bundle.export import PACKAGES
from hadpsgd.scoring.bundle.manifest import Manifest
from hadpsgd.tracking.models.carried import carry

_HERE = __name__.rpartition(".")[0]
_EXAMPLE_FRAMES = 21
_EXAMPLE_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A model as MLflow's pyfunc.

    takes: `recordings` or `features`. data: file or folder that is loaded. loader: the module that
    loads it. packages: what that imports. signature, example: MLflow's, and an input.
    """

    takes: str
    data: Path
    loader: str
    packages: tuple[str, ...]
    signature: Any
    example: Any

    def save(self, folder: Path, record: Any = None) -> None:
        """Write MLflow's folder, with the modules that it needs.

        Args:
            folder: must not be there.
            record: mlflow.models.Model that says which model it is.
        """
        import mlflow.pyfunc

        with tempfile.TemporaryDirectory() as code:
            mlflow.pyfunc.save_model(
                str(folder),
                loader_module=self.loader,
                data_path=str(self.data),
                code_paths=[str(carry(self.loader, Path(code)))],
                mlflow_model=record,
                signature=self.signature,
                input_example=self.example,
                pip_requirements=requirements(self.packages),
            )


def recogniser(bundle: Path) -> Kind:
    """A bundle: recordings to words with times."""
    from mlflow.models import ModelSignature
    from mlflow.types.schema import Array, ColSpec, DataType, Object, Property, Schema

    recording = Schema(
        [
            ColSpec(DataType.binary, "audio", required=False),
            ColSpec(Array(DataType.double), "samples", required=False),
            ColSpec(DataType.long, "sampling_rate", required=False),
        ]
    )
    word = Object(
        [
            Property("channel", DataType.string),
            Property("word", DataType.string),
            Property("begin", DataType.double),
            Property("end", DataType.double),
            Property("confidence", DataType.double, required=False),
        ]
    )
    heard = Schema(
        [
            ColSpec(DataType.double, "seconds"),
            ColSpec(DataType.string, "text"),
            ColSpec(Array(word), "words"),
        ]
    )
    return Kind(
        takes="recordings",
        data=bundle,
        loader=f"{_HERE}.served_recogniser",
        packages=("mlflow", *PACKAGES),
        signature=ModelSignature(inputs=recording, outputs=heard),
        example=_recording(Manifest.read(bundle).sample_rate),
    )


def network(model: Path) -> Kind:
    """The network of `final.pt`: normalised and fused features to scaled log-likelihoods."""
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    _, meta = load_model(model)
    frames = TensorSpec(np.dtype(np.float32), (-1, -1, meta.input_dim))
    scores = TensorSpec(np.dtype(np.float32), (-1, -1, meta.num_pdfs))
    shape = (1, _EXAMPLE_FRAMES, meta.input_dim)
    return Kind(
        takes="features",
        data=model,
        loader=f"{_HERE}.served_network",
        packages=("mlflow", "torch", "numpy", "pydantic", "pyyaml"),
        signature=ModelSignature(inputs=Schema([frames]), outputs=Schema([scores])),
        example=np.random.default_rng(0).standard_normal(shape).astype(np.float32),
    )


def requirements(packages: Iterable[str]) -> list[str]:
    """Exact versions, without their local part (`+cpu`), which package indexes do not have."""
    return [f"{name}=={metadata.version(name).partition('+')[0]}" for name in packages]


def _recording(rate: int) -> Any:
    """A beep as a recording, for a row: nobody's speech is given away with a model."""
    import pandas as pd

    time = np.arange(round(_EXAMPLE_SECONDS * rate)) / rate
    file = io.BytesIO()
    soundfile.write(file, 0.1 * np.sin(2 * np.pi * 440 * time), rate, format="WAV")
    return pd.DataFrame({"audio": [file.getvalue()]})
