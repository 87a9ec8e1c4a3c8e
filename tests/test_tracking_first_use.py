"""The first use of a sqlite file: by many at once, and by one that is killed meanwhile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from slurm_cluster import until

from hadpsgd.tracking.store import Store

PATIENCE = 300.0
WRITER = """
import sys
from pathlib import Path
from hadpsgd.tracking.events import Begin, Metrics, Point
from hadpsgd.tracking.store import Store
uri, folder, number = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
store = Store(uri, folder / "spool")
store.apply(number, [Begin(name=number, experiment="race", time_ms=1)])
for step in range(40):
    store.apply(number, [Metrics(points=[Point(name="m", value=1, step=step, time_ms=1)])])
"""


def writer(folder: Path, number: int) -> subprocess.Popen[bytes]:
    uri = f"sqlite:///{folder}/new/mlflow.db"
    command = [sys.executable, "-c", WRITER, uri, str(folder), str(number)]
    return subprocess.Popen(command, stderr=subprocess.PIPE)


def check_all_is_there(folder: Path, writers: int) -> None:
    store = Store(f"sqlite:///{folder}/new/mlflow.db", folder / "spool")
    experiments = store.client.search_experiments(filter_string="name = 'race'")
    assert len(experiments) == 1
    for number in range(writers):
        history = store.client.get_metric_history(store.run_id(str(number)), "m")
        assert sorted(point.step for point in history) == list(range(40))


def test_processes_that_meet_an_empty_database(tmp_path: Path) -> None:
    """Unguarded, MLflow fails in all of them but one."""
    writers = [writer(tmp_path, number) for number in range(4)]
    for process in writers:
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors.decode()
    check_all_is_there(tmp_path, 4)


def test_a_kill_while_tables_are_made(tmp_path: Path) -> None:
    """MLflow alone would find half of its tables and never open the file again."""
    begun = writer(tmp_path, 0)
    until(lambda: any((tmp_path / "new").glob("*mlflow.db*-journal")), PATIENCE)
    begun.kill()
    begun.communicate()
    again = writer(tmp_path, 0)
    _, errors = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0, errors.decode()
    check_all_is_there(tmp_path, 1)
    assert not [*(tmp_path / "new").glob(".mlflow.db.new*")]
