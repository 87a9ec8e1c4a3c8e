"""What is decoded beside the runs: the GMM-HMM, and ensembles of runs; each a row of the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hadpsgd.config.load import fingerprint
from hadpsgd.config.schema import Config
from hadpsgd.config.stages import KEY_DIGITS, run_key


def ensemble_keys(config: Config) -> dict[str, str]:
    """Names of the folders of every ensemble (`decoding.ensembles`), by its row.

    A hash of what decides its runs' weights is in it, not their names or order.
    """
    return {row: _key(row, list(members.values())) for row, members in _members(config).items()}


def models_together(config: Config) -> dict[str, list[str]]:
    """By key of an ensemble the keys of its runs, in the order in which their scores are added."""
    return {
        _key(row, list(members.values())): sorted(members.values(), key=_weights)
        for row, members in _members(config).items()
    }


def beside_rows(config: Config) -> dict[str, str]:
    """Rows of the tables below the runs', and the names of their folders."""
    gmm = {config.gmm_row: config.gmm_row} if config.gmm_row else {}
    return gmm | ensemble_keys(config)


def start_fingerprint(config: Config) -> str:
    """Hash of all that a start makes: of what decides results, and of the rows that are wanted."""
    decoded = [run.id for run in config.training.members if run.decode]
    return fingerprint([config, decoded, beside_rows(config)])


def _members(config: Config) -> dict[str, Mapping[str, str]]:
    """By row of an ensemble, keys of its runs by their ids."""
    return {
        row: {run: run_key(config, run) for run in config.together(row)}
        for row in config.decoding.ensembles
    }


def _key(row: str, runs: Sequence[str]) -> str:
    return f"{row}-{fingerprint(sorted(map(_weights, runs)))[:KEY_DIGITS]}"


def _weights(key: str) -> str:
    """The part of a run's key that its name does not decide."""
    return key[-KEY_DIGITS:]
