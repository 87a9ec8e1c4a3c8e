"""Which runs of a results folder belong to a config."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from hadpsgd.config import (
    Config,
    ensemble_keys,
    load,
    run_fingerprint,
    run_key,
    start_fingerprint,
)
from hadpsgd.errors import UserError
from hadpsgd.origins import Origin, read


def keys(config: Config) -> list[str]:
    """Names of the folders of its runs and ensembles."""
    runs = [run_key(config, run.id) for run in config.training.members]
    return [*runs, *ensemble_keys(config).values()]


def resumable(config: Config) -> set[tuple[str, str]]:
    """Ids of its runs and hashes of their settings: checkpoints of both are theirs."""
    return {(run.id, run_fingerprint(config, run.id)) for run in config.training.members}


def claims(config: Config, file: Path) -> tuple[dict[str, str], set[tuple[str, str]]]:
    """Runs that belong to the config as it is now, or to other configs that were started here;
    with each whose it is. Then what is resumable of them all.

    What the same file said at former starts claims nothing. A start with `--config KEY=VALUE`, or
    as a module of another workflow, is that of another config, and so is one of which nothing is
    recorded.

    Raises:
        UserError: a config of former starts cannot be read any more.
    """
    found = dict.fromkeys(keys(config), str(file))
    resumed = resumable(config)
    own = Origin.of_file(file)
    for snapshot in sorted((Path(config.results) / config.name / "configs").glob("*.yaml")):
        origins = read(snapshot)
        if origins and all(origin == own for origin in origins):
            continue
        try:
            started = load(snapshot)
        except UserError as error:
            raise UserError(
                f"{error}; so it is not known which runs are of this config",
                fix="With --others, runs of all other configs are removed, too",
            ) from None
        whose = ", ".join(map(str, origins)) or "a config that is not recorded"
        resumed |= resumable(started)
        for key in keys(started):
            found.setdefault(key, whose)
    return found, resumed


def check_started(config: Config, file: Path) -> None:
    """Refuse a config with which no workflow was started, settings that decide nothing aside.

    Environment variables are part of it: with another value of one, all its runs have other keys.

    Raises:
        UserError: it is none of those that lie in `configs/`.
    """
    own = start_fingerprint(config)
    for snapshot in (Path(config.results) / config.name / "configs").glob("*.yaml"):
        with suppress(UserError):
            if start_fingerprint(load(snapshot)) == own:
                return
    raise UserError(
        "no workflow was started here with the config as it is now, so its runs may be unknown: it"
        " was changed since, or an environment variable in it has another value than at the start",
        where=file,
        fix=f"Start it first (`snakemake --configfile {file}`; -n is not enough), or set the"
        " variable as it was",
    )
