"""What is exported: a run, or an ensemble of runs, by its folder or key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from glob import escape
from pathlib import Path

from hadpsgd import config as configs
from hadpsgd import run_folder
from hadpsgd.config import Config, keys_with_gmm, models_together
from hadpsgd.errors import UserError
from hadpsgd.scoring import scored_with
from hadpsgd.scoring.bundle.export import Run

CONFIG = "config.yaml"
_WHY = "Only finished runs are exported"


def find(name: str, results: Path) -> Run:
    """The run or ensemble of that name.

    Args:
        name: `RESULTS/NAME/runs/KEY`, of an ensemble `RESULTS/NAME/score/KEY`; or `KEY`.
        results: where keys are looked for.

    Raises:
        UserError: there is no such run, more than one, or it is not finished.
    """
    if together := list(_ensembles(name, results)):
        if len(together) > 1:
            folders = " or ".join(str(run.scored) for run in together)
            what = f"'{name}' is there {len(together)} times"
            raise UserError(what, fix=f"Give its folder: {folders}")
        for folder in together[0].folders:
            run_folder.check_finished(folder, ("final.pt",), _WHY)
        return together[0]
    folder = run_folder.find(name, results, others=_exportable(results))
    run_folder.check_finished(folder, (CONFIG, "final.pt"), _WHY)
    run = Run.of(folder, configs.load(folder / CONFIG))
    return replace(run, config=scored_with.settings(run.config, scored_with.file_of(run.scored)))


def _ensembles(name: str, results: Path) -> Iterator[Run]:
    """Those of that folder or key, of this or former settings."""
    folder = Path(name)
    found = (
        [folder.resolve()] if folder.is_dir() else sorted(results.glob(f"*/score/{escape(name)}"))
    )
    for scored in found if name else ():
        if scored.parent.name == "score":
            out, key = scored.parents[1], scored.name
            if config := _config_of(out, key):
                if key in keys_with_gmm(config):
                    raise UserError(
                        f"'{key}' has the GMM-HMM among its models, which no bundle holds",
                        fix="Export an ensemble of networks alone, or one run",
                    )
                runs = models_together(config)[key]
                config = scored_with.settings(config, scored_with.file_of(scored))
                folders = tuple(out / "runs" / run for run in runs)
                yield Run(out=out, key=key, config=config, folders=folders)


def _exportable(results: Path) -> Iterator[str]:
    """Keys of ensembles that are there, without those that have the GMM-HMM."""
    for scores in sorted(results.glob("*/score")):
        for config in _configs(scores.parent):
            keys = models_together(config).keys() - set(keys_with_gmm(config))
            yield from (key for key in keys if (scores / key).is_dir())


def _config_of(out: Path, key: str) -> Config | None:
    """The latest config that was started in the results folder `out` and has the ensemble."""
    return next((config for config in _configs(out) if key in models_together(config)), None)


def _configs(out: Path) -> Iterator[Config]:
    """Those that were started in the results folder `out`, the latest first."""
    started = sorted(
        (out / "configs").glob("*.yaml"), key=lambda file: file.stat().st_mtime, reverse=True
    )
    for file in (out / CONFIG, *started):
        try:
            config = configs.load(file)
        except (UserError, OSError):  # of another version, or not there
            continue
        yield config
