"""A run's description and data sets, written by MLflow's client."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from hadpsgd.tracking.events import Inputs, Note

NOTE_TAG = "mlflow.note.content"
_HASH_TAG = "hadpsgd.note"
"""SHA-256 of the description that was written here: another one is a person's."""
_LIMIT = 5000
"""Characters of a description (MLflow takes 8000)."""


def write_note(client: Any, run_id: str, event: Note) -> None:
    """Describe a run; what a person wrote stays. Raises whatever MLflow's client raises."""
    from mlflow.entities import RunTag

    tags = client.get_run(run_id).data.tags
    there, ours = tags.get(NOTE_TAG, ""), tags.get(_HASH_TAG)
    text = shortened(event.text, _LIMIT)
    if (not there or _hash(there) == ours) and there != text:
        both = {_HASH_TAG: _hash(text), NOTE_TAG: text}  # together, or a kill leaves one
        client.log_batch(run_id, tags=[RunTag(name, value) for name, value in both.items()])


def write_inputs(client: Any, run_id: str, event: Inputs) -> None:
    """Data sets that a run does not have yet. Raises whatever MLflow's client raises."""
    from mlflow.entities import Dataset, DatasetInput, InputTag
    from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

    found = [
        DatasetInput(
            Dataset(
                name=data.name,
                digest=data.digest,
                source_type="local",
                source=json.dumps({"uri": data.source}),
                profile=json.dumps(data.profile),
            ),
            tags=[InputTag(MLFLOW_DATASET_CONTEXT, data.context)],
        )
        for data in event.data
    ]
    client.log_inputs(run_id, found)


def shortened(text: str, limit: int) -> str:
    """As many whole lines as fit."""
    if len(text) <= limit:
        return text
    more = "\n(more in the artifacts)\n"
    return text[: limit - len(more)].rpartition("\n")[0] + more


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
