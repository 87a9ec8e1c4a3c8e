"""The configuration: one typed schema with defaults; `load` reads and checks a YAML file."""

from hadpsgd.config.beside import (
    beside_rows,
    ensemble_keys,
    keys_with_gmm,
    models_together,
    start_fingerprint,
)
from hadpsgd.config.command import write_resolved
from hadpsgd.config.effective import RunSettings
from hadpsgd.config.keys import stage_keys
from hadpsgd.config.ladder import copies_adapted_by, ivector_transform, label_folder, stage_folders
from hadpsgd.config.load import check, fingerprint, load
from hadpsgd.config.requests import asked, neural_gpus, one_gpu, request_of, shape_of
from hadpsgd.config.schema import Config
from hadpsgd.config.stages import (
    before,
    examples_of,
    row_of,
    run_fingerprint,
    run_key,
    run_of,
    settings_of,
)

__all__ = [
    "Config",
    "RunSettings",
    "asked",
    "before",
    "beside_rows",
    "check",
    "copies_adapted_by",
    "ensemble_keys",
    "examples_of",
    "fingerprint",
    "ivector_transform",
    "keys_with_gmm",
    "label_folder",
    "load",
    "models_together",
    "neural_gpus",
    "one_gpu",
    "request_of",
    "row_of",
    "run_fingerprint",
    "run_key",
    "run_of",
    "settings_of",
    "shape_of",
    "stage_folders",
    "stage_keys",
    "start_fingerprint",
    "write_resolved",
]
