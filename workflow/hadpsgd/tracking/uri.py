"""Which store, and the environment that MLflow's client needs.

Nothing here imports MLflow: that takes seconds.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from filelock import FileLock

from hadpsgd.config import Config
from hadpsgd.config.tracking import OFF, check_uri
from hadpsgd.errors import UserError

VARIABLE = "MLFLOW_TRACKING_URI"
WHY_OFF = f"tracking.uri or {VARIABLE} is '{OFF}'"
_PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
_KNOCK_SECONDS = 10

# a run waits at most this long for a dead server; all can be set by the user
_ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "GIT_PYTHON_REFRESH": "quiet",
}


def is_on(config: Config) -> bool:
    """Whether anything is recorded."""
    return OFF not in (config.tracking.uri, os.environ.get(VARIABLE))


def tracking_uri(config: Config) -> str:
    """The store: the environment's MLFLOW_TRACKING_URI, or the config's.

    Raises:
        UserError: it is not a tracking URI.
    """
    if not is_on(config):
        return OFF
    given = os.environ.get(VARIABLE)
    if not given:
        return config.tracking.uri
    try:
        return check_uri(given)
    except ValueError as error:
        raise UserError(str(error), where=VARIABLE) from None


def experiment_name(config: Config) -> str:
    """MLflow experiment of a config."""
    return config.tracking.experiment or config.name


def spool_folder(config: Config) -> Path:
    """Where records wait for an unreachable store, and where run ids are kept."""
    return Path(config.tracking.spool or Path(config.results) / "tracking")


def set_environment() -> None:
    """Short time-outs and no telemetry, unless the user says otherwise."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def redacted(uri: str) -> str:
    """The URI without its password, for logs and tags."""
    return re.sub(r"(//[^/:@]*):[^@/]*@", r"\1:***@", uri)


def database_file(uri: str) -> Path | None:
    """The file of a sqlite URI, absolute; None for other stores."""
    if not uri.startswith("sqlite"):
        return None
    return Path(uri.split("///", 1)[1].split("?")[0]).absolute()


def knock(uri: str) -> None:
    """Connect to a database's server and hang up: MLflow tries for 100 seconds where none is.

    Raises:
        OSError: nobody listens there.
    """
    parts = urlsplit(uri)
    kind = parts.scheme.split("+")[0]
    if parts.hostname and kind in _PORTS:
        address = parts.hostname, parts.port or _PORTS[kind]
        socket.create_connection(address, timeout=_KNOCK_SECONDS).close()


@contextmanager
def first_use(uri: str, spool: Path) -> Iterator[None]:
    """One process at a time while tables and experiments of a database are created.

    MLflow's client does not guard this: processes that meet an empty database all fail. The lock
    lies beside a sqlite file, where everyone who shares the file sees it, and in the spool for
    other databases. A server looks after itself.
    """
    if uri.startswith(("http", "databricks")):
        yield
        return
    file = database_file(uri)
    folder = file.parent if file else spool
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / (f".{file.name}.lock" if file else ".store.lock")):
        yield
