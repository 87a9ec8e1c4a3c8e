"""Training runs of a config by name, and the keys of their folders."""

from __future__ import annotations

import re
from collections.abc import Collection

from hadpsgd.config.effective import RunSettings, effective
from hadpsgd.config.keys import before_training, stage_keys
from hadpsgd.config.load import fingerprint
from hadpsgd.config.schema import Config
from hadpsgd.config.stage import StageRun
from hadpsgd.config.training import Run
from hadpsgd.errors import UserError

KEY_DIGITS = 8
KEY = re.compile(rf"(.+)-[0-9a-f]{{{KEY_DIGITS}}}")
"""Of a run's folder: its id, and a hash."""


def run_fingerprint(config: Config, run_id: str) -> str:
    """Hash of what decides a training run's weights, data aside."""
    settings = settings_of(config, run_id)
    decides: list[object] = [settings.training, settings.run.together, settings.model]
    if isinstance(run := settings.run, StageRun):
        decides += [run.stage, run_fingerprint(config, run.after.id)]
    return fingerprint(decides)


def before(config: Config, name: str) -> str:
    """Key of the run from whose weights that one goes on; empty where it begins anew."""
    run = run_of(config, name)
    return run_key(config, run.after.id) if isinstance(run, StageRun) else ""


def examples_of(config: Config, name: str) -> str:
    """Folder of a run's training and held-out examples, in the results."""
    run = run_of(config, name)
    return f"sequence/{run.stage.criterion}" if isinstance(run, StageRun) else "egs"


def settings_of(config: Config, name: str) -> RunSettings:
    """What the run of that id or key is trained with; raises as `run_of`."""
    return effective(config, run_of(config, name))


def row_of(config: Config, name: str) -> str:
    """The row of the tables to which the run of that id or key belongs; raises as `run_of`."""
    run = run_of(config, name).id
    return next(row for row, runs in config.training.rows.items() if run in {r.id for r in runs})


def run_key(config: Config, run_id: str) -> str:
    """Name of a run's folders: its id and a hash of all settings that decide its weights.

    Two configs of one name never write over each other's runs, and what decides nothing (other
    runs, decoding, the cluster, the code) gives no new name.
    """
    run, keys = run_of(config, run_id), stage_keys(config)
    decides: list[object] = [[stage, keys[stage]] for stage in before_training(config)]
    if config.realign.passes:
        aligner = run_fingerprint(config, config.realigner)
        decides += [aligner, config.realign.passes]
    return f"{run.id}-{fingerprint([*decides, run_fingerprint(config, run.id)])[:KEY_DIGITS]}"


def run_of(config: Config, name: str, others: Collection[str] = ()) -> Run:
    """The training run of that id or key.

    Args:
        others: what else may be asked for; named beside the runs where there is no such run.

    Raises:
        UserError: the config has no such run, or had it with other settings.
    """
    runs = config.training.by_id
    if name in runs:
        return runs[name]
    former = KEY.fullmatch(name)
    if former and former[1] in runs:
        key = run_key(config, former[1])
        if key == name:
            return runs[former[1]]
        raise UserError(
            f"'{name}' was trained with other settings: with those of now it is '{key}'",
            fix=f"Its own lie in {config.results}/{config.name}/runs/{name}/config.yaml",
        )
    names = ", ".join([*runs, *others])
    raise UserError(f"no training run '{name}' in config '{config.name}'", fix=f"It has: {names}")
