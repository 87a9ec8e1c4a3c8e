"""What is recorded of the GMM-HMM and of ensembles, which are scored beside the runs, as events.

Each is a run without curves: nothing of it is trained step by step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hadpsgd.config import Config, fingerprint
from hadpsgd.tracking import datasets, provenance, scoring_run, training_run
from hadpsgd.tracking.beside import Beside
from hadpsgd.tracking.events import Artifact, Begin, Event, Finish, Params, Tags
from hadpsgd.tracking.identity import Identity
from hadpsgd.tracking.results import State
from hadpsgd.tracking.uri import experiment_name

_OTHERS = {"results", "tracking", "site", "model", "training"}
"""Sections of the config that do not decide it."""


def events(config: Config, result: Beside, who: Identity) -> Iterator[Event]:
    """The run, its parameters, provenance and scores, all at once."""
    time_ms = scoring_run.written_ms(result.scored)
    yield _begin(config, result, who)
    settings = config.model_dump(mode="json", exclude=_OTHERS)
    del settings["decoding"]["ensembles"]  # of all: this one's runs are below
    settings["tuned"] = scoring_run.chosen(result)
    if result.runs:
        settings["together"] = sorted(result.members)
    if not (result.runs and result.gmm):
        del settings["decoding"]["gmm_share"]
    yield Params(values=dict(training_run.flatten(settings)))
    found = _provenance(config, result, time_ms)
    yield from datasets.trained_on(config, found["data"])
    yield Tags(values=_tags(config, result) | provenance.tags(found))
    for name in training_run.PROVENANCE:
        if (result.scored / name).is_file():
            yield Artifact(path=str((result.scored / name).absolute()), folder="provenance")
    yield from scoring_run.word_errors(config, result, time_ms)
    yield from scoring_run.files(result)
    yield Finish(status="FINISHED", time_ms=time_ms)


def without_scores(config: Config, result: Beside, who: Identity) -> Iterator[Event]:
    """How it ended now: the numbers of before, which MLflow keeps, do not count any more."""
    yield _begin(config, result, who)
    yield Tags(values=_tags(config, result))
    if result.state is State.DIVERGED:
        yield Finish(status="FAILED", time_ms=int(who.created * 1000))


def description(config: Config, result: Beside, *, table: str) -> str:
    """What MLflow shows above its page."""
    what = f"{result.together}, of" if result.runs else "the GMM-HMM of"
    return f"`{result.name}`: {what} config `{config.name}`.\n\n{table}"


def _begin(config: Config, result: Beside, who: Identity) -> Begin:
    """With its scores, before which it has no time: it is recorded once they are there."""
    created = int(who.created * 1000)
    return Begin(
        name=training_run.run_name(config, result.name),
        experiment=experiment_name(config),
        time_ms=min(created, scoring_run.written_ms(result.scored) or created),
        user=training_run.user(),
    )


def _tags(config: Config, result: Beside) -> dict[str, str]:
    return {
        "kind": result.kind,
        "corpus": config.corpus.kind,
        "config": config.name,
        "config_hash": fingerprint([config]),
        "run": result.name,
        "row": result.name,
        training_run.STATUS: result.state,
        training_run.WHY: result.why,
    }


def _provenance(config: Config, result: Beside, time_ms: int) -> dict[str, Any]:
    """Where the scores come from; that of former ones makes way."""
    file = result.scored / provenance.FILE
    if file.is_file() and file.stat().st_mtime * 1000 < time_ms:
        file.unlink()
    return training_run.write_provenance(config, result.scored)
