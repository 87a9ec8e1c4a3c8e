"""Compile what the stages load, so that their first starts take no longer than later ones.

Run by `make setup`, in two processes. All of the packages would take three times as long, most of
it for modules and tests of theirs that nothing here loads; those are compiled when they are used.
"""

from __future__ import annotations

import os
import subprocess
import sys

STAGES = "[importlib.import_module(module) for module, *_ in hadpsgd.cli.STAGES.values()]"
PARTS = (
    # an optimiser, as it is made, loads torch's compiler, which has 800 modules
    f"import importlib, torch._dynamo, hadpsgd.cli; {STAGES}",
    # and what stages load late: an MLflow file, copies of recordings, tests of seeds
    "import snakemake.cli, mlflow.pyfunc, mlflow.store.tracking.sqlalchemy_workspace_store, "
    "alembic.command, sqlalchemy.dialects.sqlite, pandas, matplotlib.figure, "
    "matplotlib.backends.backend_agg, scipy.signal, scipy.stats, soundfile",
)


def main() -> int:
    """Exit status: 1 if a part failed."""
    # containers tell Python to write nothing: each start would compile all anew
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    parts = [subprocess.Popen([sys.executable, "-c", part], env=environment) for part in PARTS]
    statuses = [part.wait() for part in parts]
    return int(any(statuses))


if __name__ == "__main__":
    sys.exit(main())
