"""Where in which store a run was written: `<spool>/<key>/run.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hadpsgd.files import write_text
from hadpsgd.tracking.uri import redacted


def known_run(spool: Path, *, key: str, uri: str) -> dict[str, str]:
    """Where a run was written in this store: `run_id`, `experiment_id`; empty if unknown."""
    try:
        runs: dict[str, Any] = json.loads((spool / key / "run.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return runs.get(redacted(uri), {})


def remember_run(spool: Path, *, key: str, uri: str, experiment: str, run_id: str) -> None:
    """Keep a run's id in the spool, so that reports need not ask the store."""
    if known_run(spool, key=key, uri=uri).get("run_id") == run_id:
        return
    file = spool / key / "run.json"
    runs = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    runs[redacted(uri)] = {"experiment_id": experiment, "run_id": run_id}
    write_text(file, json.dumps(runs, indent=2) + "\n")
