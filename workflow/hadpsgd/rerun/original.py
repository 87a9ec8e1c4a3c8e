"""The run that is to be made again: its config, where it came from, what came out."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hadpsgd import run_folder
from hadpsgd.config import Config, check, run_key, run_of
from hadpsgd.config.tracking import check_uri
from hadpsgd.config.training import Run
from hadpsgd.errors import UserError
from hadpsgd.scoring import scored_with
from hadpsgd.scoring.command import read_tuned
from hadpsgd.scoring.tune import Setting
from hadpsgd.tracking import identity, provenance
from hadpsgd.tracking.failures import NotStoredError
from hadpsgd.tracking.scoring_run import read_counts
from hadpsgd.tracking.training_run import CONFIG
from hadpsgd.tracking.uri import database_file

COUNTS = ("words", "sub", "ins", "del")
_MLFLOW_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, kw_only=True)
class Original:
    """A finished run."""

    key: str
    """Name of its folders."""
    config: Config
    """As it was trained, and scored since."""
    provenance: dict[str, Any]
    summary: dict[str, Any]
    scores: dict[str, dict[str, int]] = field(default_factory=dict)
    """By set, the counts of its word errors."""
    tuned: Setting | None = None
    """What dev chose for it, where that is known."""
    results: Path | None = None
    """Folder of all results, where it is here."""
    identity: str = ""
    """Its key in every MLflow store; empty where it was never tracked."""
    mlflow_run: str = ""
    """Its id in the store where it was found."""

    @property
    def run(self) -> Run:
        """Its settings."""
        run = self.key.rpartition("-")[0]
        return run_of(self.config, run)

    @property
    def checkpoints(self) -> Path | None:
        """Folder of its checkpoints and its record, if it is here."""
        if self.results is None:
            return None
        name = f"{self.run.id}-{self.summary['identity']}"
        folder = self.results / "checkpoints" / self.config.name / name
        return folder if folder.is_dir() else None


def find(name: str, results: Path, uri: str) -> Original:
    """A run by its folder, by its key in a results folder, or by its id in MLflow.

    Args:
        name: `RESULTS/NAME/runs/KEY`, `KEY`, or 32 hexadecimal digits.
        results: where keys are looked for.
        uri: the MLflow store.

    Raises:
        UserError: there is no such run, it is not finished, or it recorded too little.
    """
    if _MLFLOW_ID.fullmatch(name):
        return _from_store(name, uri)
    return _from_folder(run_folder.find(name, results, also="; or give an MLflow run id"))


def _summary(file: Path) -> dict[str, Any]:
    """What training left; raises UserError where that is no model."""
    summary: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if "diverged" in summary:
        raise UserError(
            f"the run diverged ({summary['diverged']}): it left no weights to compare with",
            where=file,
            fix="Only runs with a model are rerun",
        )
    return summary


def _from_folder(folder: Path) -> Original:
    files = (CONFIG, provenance.FILE, "summary.json")
    run_folder.check_finished(folder, files, "Only finished runs are rerun")
    base = folder.parents[1]
    scored = (base / "score" / folder.name).glob("*/wer.json")
    scores = {file.parent.name: json.loads(file.read_text(encoding="utf-8")) for file in scored}
    return Original(
        key=folder.name,
        config=_config(
            folder / CONFIG, scored_with.file_of(base / "score" / folder.name), folder.name
        ),
        provenance=provenance.read(folder),
        summary=_summary(folder / "summary.json"),
        tuned=_tuned(base / "score" / folder.name),
        scores={name: {c: int(row[c]) for c in COUNTS} for name, row in scores.items()},
        results=base.parent,
        identity=who.key if (who := identity.read(folder)) else "",
    )


def _config(file: Path, scored: Path | None, key: str) -> Config:
    """That of the training, with what the scores were made with since if that has the run."""
    trained = check(yaml.safe_load(file.read_text(encoding="utf-8")), file)
    config, run = scored_with.settings(trained, scored), key.rpartition("-")[0]
    return config if run_key(config, run) == run_key(trained, run) else trained


def _tuned(folder: Path) -> Setting | None:
    file = folder / "tuned.json"
    return read_tuned(file) if file.is_file() else None


def _from_store(run_id: str, uri: str) -> Original:
    from hadpsgd.tracking.store import KEY_TAG, Store

    try:
        check_uri(uri)
    except ValueError as error:
        raise UserError(str(error), fix="Give the store with --tracking-uri") from None
    file = database_file(uri)
    if file is not None and not file.exists():  # MLflow would make it
        raise UserError(
            "no such file, so no MLflow store",
            where=file,
            fix="Give the store of the run with --tracking-uri",
        )
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        try:
            tags = Store(uri, folder / "spool").download(run_id, folder)
        except NotStoredError as error:
            raise UserError(str(error)) from None
        if not (folder / "summary.json").is_file() or "run_key" not in tags:
            raise UserError(
                f"run {run_id} has no summary.json and no run_key",
                fix="Only finished trainings are rerun; `hadpsgd track` uploads what is missing",
            )
        file = folder / "scored" / scored_with.FILE
        scored = file if file.is_file() else None
        config = _config(folder / "provenance" / CONFIG, scored, tags["run_key"])
        results = Path(config.results)
        return Original(
            key=tags["run_key"],
            config=config,
            provenance=provenance.read(folder / "provenance"),
            summary=_summary(folder / "summary.json"),
            tuned=_tuned(folder / "scored"),
            scores=read_counts(tags),
            results=results.absolute() if results.is_dir() else None,
            identity=tags.get(KEY_TAG, ""),
            mlflow_run=run_id,
        )
