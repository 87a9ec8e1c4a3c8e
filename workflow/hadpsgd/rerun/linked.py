"""A rerun in MLflow: under its original, which it names and which names it."""

from __future__ import annotations

from hadpsgd.config import Config
from hadpsgd.rerun.original import Original
from hadpsgd.tracking.events import Event, Note, Tags
from hadpsgd.tracking.failures import NotStoredError
from hadpsgd.tracking.recorder import Connection, Recorder, warn
from hadpsgd.tracking.results import RunResult, read_result
from hadpsgd.tracking.store import PARENT_TAG
from hadpsgd.tracking.sync import sync
from hadpsgd.tracking.uri import experiment_name, is_on

RERUN_OF = "rerun_of"
"""Tag of a rerun: the original's MLflow run, or its key where the store has no such run."""
OUTCOME = "rerun"
"""Tag of a rerun: `identical` or `different`."""
RERUN = "rerun."
"""Prefix of the original's tags, one a rerun: outcome, word error rates, the rerun's MLflow run."""


def link(original: Original, config: Config, report: str, *, same: bool) -> None:
    """Send a finished rerun to MLflow, with its word error rates, and link both runs.

    It never raises for the store's sake: what could not be said is named in a warning.

    Args:
        original: the run that was made again.
        config: of the rerun.
        report: what differs, in Markdown: the rerun's description.
        same: whether weights and word errors are identical.
    """
    if not is_on(config):
        return
    [made] = sync(config, None, run=original.run.id)
    connection = Connection(config)
    try:
        store = connection.store()
        known = original.mlflow_run or (
            store.find(original.identity, experiment=experiment_name(config))
            if original.identity
            else None
        )
        outcome = "identical" if same else "different"
        tags = {OUTCOME: outcome, RERUN_OF: known or original.key}
        events: list[Event] = [Note(text=report)]
        if known:
            tags[PARENT_TAG] = known
        sent = Recorder(connection, made.key).send([Tags(values=tags), *events], now=True)
        if known and sent:
            rates = _rates(read_result(config, original.run))
            value = f"{outcome}; {rates}; run {store.run_id(made.key)}"
            store.tag(known, {f"{RERUN}{made.key[:8]}": value})
    except NotStoredError as error:
        warn(f"{error}: {original.key} does not name its rerun; `hadpsgd rerun` again says it")


def _rates(result: RunResult) -> str:
    rates = (f"{name} {score.wer:.2f} %" for name, score in result.scores.items())
    return "WER " + ", ".join(rates) if result.scores else "not scored"
