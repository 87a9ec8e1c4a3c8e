"""Where runs are tracked."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from hadpsgd.config.base import PathText, Section, expand

SCHEMES = ("sqlite", "http", "https", "postgresql", "mysql", "mssql", "databricks")
OFF = "none"


def check_uri(uri: str) -> str:
    """A tracking URI that MLflow accepts, variables expanded; raises ValueError otherwise."""
    uri = expand(uri)
    if uri == OFF:
        return uri
    scheme, separator, rest = uri.partition(":")
    if scheme == "databricks" and not separator:
        return uri
    if scheme.split("+")[0] not in SCHEMES or not rest.startswith("//"):
        raise ValueError(
            f"not a tracking URI: {uri!r}; give sqlite:///FILE, http(s)://SERVER:PORT or "
            "postgresql://USER:PASSWORD@HOST/DATABASE (MLflow 3 refuses plain folders)"
        )
    if scheme == "sqlite" and (not rest.startswith("///") or len(rest) == 3):
        raise ValueError(f"not a tracking URI: {uri!r}; sqlite needs three slashes, then a file")
    return uri


class Tracking(Section):
    """MLflow. A store that cannot be reached never stops a run: records wait in `spool`."""

    uri: Annotated[str, AfterValidator(check_uri)] = "sqlite:///mlflow.db"
    """Tracking store; the environment variable MLFLOW_TRACKING_URI goes before it. `none`, in
    either of them, records nothing."""
    experiment: str = Field("", max_length=200)
    """Experiment; the config's name where it is empty."""
    every_seconds: float = Field(5.0, gt=0)
    """Seconds between points of the training curves."""
    spool: PathText = ""
    """Folder of records that wait for the store (`hadpsgd track --upload` sends them);
    `tracking` in the results folder where it is empty."""
    hostnames: bool = False
    """Record the names of the hosts."""
    system_metrics: bool = True
    """Record memory and processor use of each rank while it trains."""
    register_model: bool = True
    """Log a model of each scored run (of one that is not decoded, its network once it is trained)
    and register it; false logs none. Each takes the disk space of the network and the graph."""
