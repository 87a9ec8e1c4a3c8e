"""Trainings that diverge: how it is seen, and what they leave as their result."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from hadpsgd.config import RunSettings
from hadpsgd.files import write_text
from hadpsgd.tracking.results import SUMMARY

FILE = "divergence.json"
"""In the folder of the run: what the rank said that saw it."""
GUESS = 0.99
"""A held-out loss of this share of ln(pdfs), or more, is that of a guess."""


def verdict(*, loss: float, num_pdfs: int) -> str:
    """Why a held-out loss (nats a frame) is none of a training that went well; empty if it is."""
    guess = math.log(num_pdfs)
    if not math.isfinite(loss):
        return f"the held-out loss is {loss}"
    if loss >= GUESS * guess:
        return f"the held-out loss {loss:.4g} is that of a guess among {num_pdfs} pdfs, {guess:.4g}"
    return ""


def note(out: Path, identity: str, step: int, why: str) -> None:
    """A rank leaves what it saw for who started it."""
    write_text(out / FILE, json.dumps({"identity": identity, "step": step, "why": why}) + "\n")


def noted(out: Path, identity: str) -> dict[str, Any]:
    """What a rank of this run left; empty where none did."""
    try:
        found = json.loads((out / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return found if found["identity"] == identity else {}


def forget(out: Path) -> None:
    """Another start may go otherwise."""
    (out / FILE).unlink(missing_ok=True)


def keep(out: Path, settings: RunSettings, found: dict[str, Any]) -> None:
    """Make the divergence the run's result: summary.json says so, final.pt has no weights."""
    from hadpsgd.models.build import save_diverged

    run = settings.run
    save_diverged(out / "final.pt", found["why"])
    summary = {
        "run": run.id,
        "identity": found["identity"],
        "strategy": run.strategy,
        "learners": run.learners,
        "super_learner": run.super_learner,
        "schedule": run.schedule,
        "epochs": settings.training.epochs,
        "steps": found["step"],
        "diverged": found["why"],
    }
    write_text(out / SUMMARY, json.dumps(summary, indent=2) + "\n")
