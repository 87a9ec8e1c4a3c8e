"""What is decoded beside the runs: the GMM-HMM, and ensembles of runs; each a row of the tables."""

from __future__ import annotations

from hadpsgd.config.load import fingerprint
from hadpsgd.config.schema import Config
from hadpsgd.config.stages import KEY_DIGITS, run_key


def models_together(config: Config) -> dict[str, list[str]]:
    """By key of an ensemble the keys of its runs, in the order in which their scores are added.

    A hash of what decides its runs' weights is in its key, not their names or order; and the share
    of the GMM-HMM, where that is one of them.
    """
    found = {}
    for row in config.decoding.ensembles:
        runs = sorted((run_key(config, run) for run in config.together(row)), key=_weights)
        decide: list[object] = [_weights(run) for run in runs]
        if config.has_gmm(row):
            decide.append({"gmm": config.decoding.gmm_share})
        found[f"{row}-{fingerprint(decide)[:KEY_DIGITS]}"] = runs
    return found


def keys_with_gmm(config: Config) -> list[str]:
    """Keys of the ensembles that have the GMM-HMM among them."""
    return [key for row, key in ensemble_keys(config).items() if config.has_gmm(row)]


def ensemble_keys(config: Config) -> dict[str, str]:
    """Names of the folders of every ensemble (`decoding.ensembles`), by its row."""
    return dict(zip(config.decoding.ensembles, models_together(config), strict=True))


def beside_rows(config: Config) -> dict[str, str]:
    """Rows of the tables below the runs', and the names of their folders."""
    gmm = {config.gmm_row: config.gmm_row} if config.gmm_row else {}
    return gmm | ensemble_keys(config)


def start_fingerprint(config: Config) -> str:
    """Hash of all that a start makes: of what decides results, and of the rows that are wanted."""
    decoded = [run.id for run in config.training.members if run.decode]
    return fingerprint([config, decoded, beside_rows(config)])


def _weights(key: str) -> str:
    """The part of a run's key that its name does not decide."""
    return key[-KEY_DIGITS:]
