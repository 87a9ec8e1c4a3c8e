"""What is recorded of the scoring of a training run, as events."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from hadpsgd.config import Config, fingerprint
from hadpsgd.config.decoding import OF_ENSEMBLES
from hadpsgd.scoring.choice import CHOSEN, RULE
from hadpsgd.tracking import datasets, training_run
from hadpsgd.tracking.events import (
    Artifact,
    Begin,
    Event,
    Finish,
    Metrics,
    Params,
    Point,
    Tags,
)
from hadpsgd.tracking.metrics_file import Row
from hadpsgd.tracking.models.champion import DEV_SET_TAG
from hadpsgd.tracking.results import Result, RunResult, Score, results_folder
from hadpsgd.tracking.uri import experiment_name

WER = "WER"  # capitals: first in MLflow's lists
_DECIMALS = 4  # of MLflow's columns, which cut longer numbers; one error in a million words is seen
COUNTS = "errors."
"""Prefix of the tags with words, substitutions, insertions and deletions of a set."""
_SECTIONS = ("lm", "graph", "decoding", "scoring")
_FILES = ("wer.json", "hyp.txt", "ctm", "stm", "alignments.txt")


def key(training_key: str, result: RunResult) -> str:
    """Key of a scoring: the same scores of the same training are one scoring."""
    content = {"tuned": chosen(result), "scores": {n: asdict(s) for n, s in result.scores.items()}}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return f"{training_key}-{digest[:12]}"


def events(config: Config, training_key: str, result: RunResult) -> Iterator[Event]:
    """The scoring as a run of its own, folded under its training in the store's pages."""
    folder = result.scored
    time_ms = written_ms(folder)
    yield Begin(
        name=f"score {training_run.run_name(config, result.run.id)}",
        experiment=experiment_name(config),
        time_ms=time_ms,
        parent=training_key,
        user=training_run.user(),
    )
    settings = config.model_dump(mode="json", include=set(_SECTIONS)) | {"tuned": chosen(result)}
    for name in OF_ENSEMBLES:
        del settings["decoding"][name]
    yield Params(values=dict(training_run.flatten(settings)))
    hashes = {f"{name}_hash": fingerprint([getattr(config, name)]) for name in _SECTIONS}
    base = training_run.tags(config, result.run.id)
    yield Tags(values=base | hashes | {"kind": "scoring", "training_key": training_key})
    yield from word_errors(config, result, time_ms)
    yield from files(result)
    perplexity = results_folder(config) / "lm/neural/meta.json"
    if config.lm.neural and perplexity.is_file():
        yield Artifact(path=str(perplexity.absolute()), folder="lm")
    yield Finish(status="FINISHED", time_ms=time_ms)


def files(result: Result) -> Iterator[Artifact]:
    """What was chosen on dev; of every set the words, their times and how they were aligned."""
    folder = result.scored
    if (folder / "tuned.json").is_file():
        yield Artifact(path=str((folder / "tuned.json").absolute()))
    for name in result.scores:
        for file in _FILES:
            if (folder / name / file).is_file():
                yield Artifact(path=str((folder / name / file).absolute()), folder=name)


def word_errors(config: Config, result: Result, time_ms: int) -> Iterator[Event]:
    """Word error rates in percent; their counts as tags; the sets. The latest scoring counts."""
    points = [
        Point(name=f"{WER}/{name}", value=round(score.wer, _DECIMALS), step=0, time_ms=time_ms)
        for name, score in result.scores.items()
    ]
    yield Metrics(points=points, replace=True)
    counts = {COUNTS + name: json.dumps(_counts(score)) for name, score in result.scores.items()}
    scoring = fingerprint([config.scoring, RULE])
    dev_set = {DEV_SET_TAG: f"{datasets.digest(config, 'dev')}-{scoring}"}
    yield Tags(values=counts | (dev_set if "dev" in result.scores else {}))
    yield from datasets.tested_on(config, [name for name in result.scores if name != "dev"])


def read_counts(tags: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """By set, the counts that `word_errors` left among a run's tags."""
    return {
        name.removeprefix(COUNTS): json.loads(value)
        for name, value in tags.items()
        if name.startswith(COUNTS)
    }


def tested(tests: Row, run: str) -> Tags:
    """Intervals of the error rates and tests against the config's first row, by set, as text.

    A run of a row of several seeds has its own interval, and what holds for the row: its mean, the
    interval of that, its tests.
    """
    values: dict[str, str] = {}
    for name, test in tests.items():
        row = _row_of(run, test["runs"])
        if row is None:
            continue
        found = test["runs"][row]
        own = found.get("members", {}).get(run, found)
        values[f"interval.{name}"] = _interval(own)
        if (seeds := len(found.get("members", ()))) > 1:
            values[f"seeds.{name}"] = f"{found['wer']:.3f} % ({_interval(found)}) of {seeds}"
        first = next(iter(test["runs"]))
        for pair in test["pairs"]:
            if (pair["first"], pair["second"]) == (first, row):
                change = f"{0.0 - pair['difference']:+.3f} from {first}, p {pair['p']:.3f}"
                values[f"difference.{name}"] = change
    return Tags(values=values)


def _interval(row: Row) -> str:
    low, high = row["interval"]
    return f"{low:.3f} .. {high:.3f}"


def _row_of(run: str, rows: Row) -> str | None:
    """The row that a run is, or is one of."""
    return next((n for n, row in rows.items() if run in (n, *row.get("members", ()))), None)


def chosen(result: Result) -> dict[str, float]:
    """The weights and the penalty that dev chose."""
    return {name: result.tuned[name] for name in CHOSEN if name in result.tuned}


def _counts(score: Score) -> dict[str, int]:
    return {"words": score.words, "sub": score.sub, "ins": score.ins, "del": score.dele}


def written_ms(folder: Path) -> int:
    """When the last set of a scoring was scored."""
    times = [file.stat().st_mtime for file in folder.glob("*/wer.json")]
    return int(max(times, default=0.0) * 1000)
