"""Runs of virtual learners, and the command that trains them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from training_data import write_config

KINDS: dict[str, dict[str, Any]] = {
    "single": {},
    "ssgd": {"learners": 4},
    "dpsgd": {"learners": 4},
    "adpsgd": {"learners": 4},
    "adpsgd-drawn": {"learners": 4, "schedule": "random-partner"},
    "rand": {"learners": 4},
    "d1d": {"learners": 4},
    "local": {"learners": 4, "synchronous_epochs": 1, "average_every": 3},
    "diloco": {"learners": 4, "average_every": 3},
    "noloco": {"learners": 4, "average_every": 3},
    "sgp": {"learners": 4},
    "hadpsgd": {"learners": 4, "super_learner": 2},
    "hadpsgd-dpsgd": {"learners": 4, "super_learner": 2, "among": "dpsgd"},
    "hadpsgd-d1d": {"learners": 4, "super_learner": 2, "among": "d1d"},
}


def run_of_kind(kind: str) -> dict[str, Any]:
    """A run whose times differ from learner to learner and from step to step."""
    strategy = kind.split("-")[0]
    # a gradient that is a round late bears a smaller step
    gentle = {"learning_rate": {"base": 0.2, "base_batch": 40}} if "d1d" in kind else {}
    slow = {} if strategy == "single" else {"slow_learners": {1: 3.0}}
    return {
        "name": kind,
        "strategy": strategy,
        "launcher": "virtual",
        "virtual": {"compute_seconds": 0.5, "model_mib": 1.0, "inside_seconds": 0.01},
        "injected": {"link_ms": 1.0, "link_mbit": 100.0, "spread": "lognormal",
                     "deviation": 0.2, **slow},
        **KINDS[kind],
        **gentle,
    }  # fmt: skip


def arguments(folder: Path, egs: Path, run: dict[str, Any], **training: Any) -> list[str]:
    """Of `hadpsgd train`, which tracks nothing."""
    config = write_config(folder, [run], **training)
    content = config.read_text() + "\n"
    config.write_text(content.replace("every_seconds: 0.2", "{every_seconds: 0.2, uri: none}"))
    return ["train", "--config", str(config), "--run-id", run["name"], "--out", str(folder / "out"),
            "--egs", str(egs / "train"), "--dev-egs", str(egs / "dev")]  # fmt: skip
