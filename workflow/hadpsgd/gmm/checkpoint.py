"""What a stage's training goes on from after a kill: model, features and alignments.

A checkpoint belongs to what a training began with, to the bit: first model and alignments, graphs,
schedule. What leads there is computed again; with anything else the checkpoint is not used.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hadpsgd.errors import UserError
from hadpsgd.files import DAMAGED_ARRAYS, atomic_file, sha256
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

        Alignments go back into the workspace, and `random` to where it was. A checkpoint that does
        not belong here, or is damaged, is removed.
        """
        self._begun_with = _fingerprint(schedule, search, state)
        try:
            return self._taken_up(state, random)
        except FileNotFoundError:
            if not self._folder.exists():
                return 0, state
            why = "incomplete"
        except (UserError, *DAMAGED_ARRAYS) as error:
            why = str(error)
        print(f"{self._folder} is not used: {why}", file=sys.stderr)
        self.remove()
        return 0, state

    def _taken_up(self, state: State, random: np.random.Generator) -> tuple[int, State]:
        with np.load(self._folder / _STATE) as stored:
            told = json.loads(str(stored["told"]))
            if told["begun_with"] != self._begun_with:
                raise ValueError("the stage begins with other data or settings now")
            pipeline = Pipeline(
                state.passes.pipeline.context,
                stored["matrix"] if told["matrix"] else None,
                dict(zip(told["speakers"], stored["transforms"], strict=True)),
            )
            model = parse(stored["model"].tobytes())
        state.passes.space.restore_alignment(self._folder / told["alignment"])
        random.bit_generator.state = told["random"]
        self._alignment = told["alignment"]
        passes = replace(state.passes, pipeline=pipeline)
        return int(told["iteration"]), state._replace(passes=passes, model=model)

    def realigned(self) -> None:
        """The alignments that were written are not those of now."""
        self._alignment = ""

    def save(self, iteration: int, state: State, random: np.random.Generator) -> None:
        """Write what the training has come to, if that was not done a moment ago.

        Training goes on if that fails, and tries again later.
        """
        if time.monotonic() - self._written < EVERY_SECONDS:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._write(iteration, state, random)
            self._sweep()
        except (UserError, OSError) as error:
            self._alignment = ""
            print(f"warning: no checkpoint could be written: {error}", file=sys.stderr)
        self._written = time.monotonic()

    def _write(self, iteration: int, state: State, random: np.random.Generator) -> None:
        if not self._alignment:
            alignment = f"alignment.{iteration}"
            with atomic_file(self._folder / alignment) as file:
                state.passes.space.save_alignment(file)
            self._alignment = alignment
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

    def _sweep(self) -> None:
        """Remove older alignments, and what a kill in the middle of writing left."""
        for old in self._folder.iterdir():
            if old.name not in (_STATE, self._alignment):
                old.unlink()

    def remove(self) -> None:
        """The stage is written."""
        with suppress(OSError):  # first: without the rest it is nothing
            (self._folder / _STATE).unlink(missing_ok=True)
        shutil.rmtree(self._folder, ignore_errors=True)


def _fingerprint(schedule: Schedule, search: Search, state: State) -> str:
    """Of all that decides what comes of a training, but the program itself."""
    (passes, model), digest = state, hashlib.sha256()
    pipeline, space = passes.pipeline, passes.space
    plan = asdict(schedule) | {"realign": sorted(schedule.realign)}
    told = [plan, asdict(search), pipeline.context, list(pipeline.transforms)]
    digest.update(json.dumps([*told, space.names, space.speakers]).encode())
    digest.update(content(model))
    for array in (pipeline.matrix, space.offsets, *pipeline.transforms.values()):
        digest.update(b"none" if array is None else repr(array.shape).encode() + array.tobytes())
    for name in ("alignment", "graphs"):
        digest.update(sha256(space.folder / name).encode())
    return digest.hexdigest()
