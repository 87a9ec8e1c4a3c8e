"""What a stage's training goes on from after a kill: model, features and alignments.

A checkpoint belongs to what a training began with, to the bit: first model and alignments, graphs,
schedule. What leads there is computed again; with anything else the checkpoint is not used.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hadpsgd.files import DAMAGED_ARRAYS, atomic_file
from hadpsgd.gmm.em import Search
from hadpsgd.gmm.model import content, parse
from hadpsgd.gmm.pipeline import Pipeline

if TYPE_CHECKING:
    from hadpsgd.gmm.training import Schedule, State

EVERY_SECONDS = 60.0
"""No more often, so that short trainings write none."""
_STATE = "state.npz"


class Checkpoint:
    """Of one training.

    Args:
        folder: where it lies until `remove`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written = time.monotonic()
        self._alignment = ""
        self._begun_with = ""

    def begin(
        self, schedule: Schedule, search: Search, state: State, random: np.random.Generator
    ) -> tuple[int, State]:
        """Iterations that are done, 0 if all are to do, and where they led.

        Alignments go back into the workspace, and `random` to where it was.
        """
        self._begun_with = _fingerprint(schedule, search, state)
        try:
            with np.load(self._folder / _STATE) as stored:
                told = json.loads(str(stored["told"]))
                if told["begun_with"] != self._begun_with:
                    return 0, state
                pipeline = Pipeline(
                    state.passes.pipeline.context,
                    stored["matrix"] if told["matrix"] else None,
                    dict(zip(told["speakers"], stored["transforms"], strict=True)),
                )
                model = parse(stored["model"].tobytes())
                random.bit_generator.state = told["random"]
            if told["alignment"]:
                state.passes.space.restore_alignment(self._folder / told["alignment"])
        except DAMAGED_ARRAYS:  # none was written yet
            return 0, state
        self._alignment = told["alignment"]
        passes = replace(state.passes, pipeline=pipeline)
        return int(told["iteration"]), type(state)(passes, model)

    def realigned(self) -> None:
        """The alignments that were written are not those of now."""
        self._alignment = ""

    def save(self, iteration: int, state: State, random: np.random.Generator) -> None:
        """Write what the training has come to, if that was not done a moment ago."""
        if time.monotonic() - self._written < EVERY_SECONDS:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        if not self._alignment:
            self._alignment = f"alignment.{iteration}"
            with atomic_file(self._folder / self._alignment) as file:
                state.passes.space.save_alignment(file)
        pipeline = state.passes.pipeline
        told = {
            "begun_with": self._begun_with,
            "iteration": iteration,
            "alignment": self._alignment,
            "matrix": pipeline.matrix is not None,
            "speakers": list(pipeline.transforms),
            "random": random.bit_generator.state,
        }
        with atomic_file(self._folder / _STATE) as file, file.open("wb") as stream:
            np.savez(
                stream,
                told=np.array(json.dumps(told)),
                matrix=np.zeros(0) if pipeline.matrix is None else pipeline.matrix,
                transforms=np.array(list(pipeline.transforms.values())),
                model=np.frombuffer(content(state.model), np.uint8),
            )
        for old in self._folder.glob("alignment.*"):
            if old.name != self._alignment:
                old.unlink()
        self._written = time.monotonic()

    def remove(self) -> None:
        """The stage is written."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _fingerprint(schedule: Schedule, search: Search, state: State) -> str:
    """Of all that decides what comes of a training."""
    (passes, model), digest = state, hashlib.sha256()
    pipeline, space = passes.pipeline, passes.space
    plan = asdict(schedule) | {"realign": sorted(schedule.realign)}
    digest.update(json.dumps([plan, asdict(search), pipeline.context, space.names]).encode())
    digest.update(content(model))
    for array in (pipeline.matrix, space.offsets, *pipeline.transforms.values()):
        digest.update(b"" if array is None else array.tobytes())
    for file in (space.folder / "alignment", space.folder / "graphs"):
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()
