"""MLflow on sqlite for tests."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hadpsgd.tracking.store import Store


@pytest.fixture(scope="session")
def empty_mlflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database: making its tables takes seconds."""
    folder = tmp_path_factory.mktemp("empty_mlflow")
    Store(f"sqlite:///{folder}/mlflow.db", folder / "spool")
    return folder / "mlflow.db"


@pytest.fixture
def mlflow_folder(empty_mlflow: Path, tmp_path: Path) -> Path:
    """A folder with an empty database."""
    shutil.copyfile(empty_mlflow, tmp_path / "mlflow.db")
    return tmp_path


@pytest.fixture
def no_tracking_uri(monkeypatch: pytest.MonkeyPatch) -> None:
    """The config names the store, not the machine."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture
def unrecorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing goes to MLflow: a follower takes longer than many a training of these tests."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")


def steps(store: Store, key: str, name: str = "loss") -> list[int]:
    """The steps at which a run has values of a metric."""
    return [m.step for m in store.client.get_metric_history(store.run_id(key), name)]
