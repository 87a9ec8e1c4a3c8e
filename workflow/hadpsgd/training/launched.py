"""A run to be launched: what is asked for, whether its ranks need each other, those of a host."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from hadpsgd.config import Config, RunSettings, settings_of
from hadpsgd.config.training import Run
from hadpsgd.decentralized.strategies.registry import find
from hadpsgd.training.ranks import Ranks


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A run to be started."""

    config_file: Path
    config: Config
    run_id: str
    egs: Path
    dev_egs: Path
    out: Path
    logs: Path
    initial: Path | None = None
    """The model that a stage goes on from."""
    restarts: int = 10
    """How many ranks that die are started again, on each host, and how often all are."""
    wait: bool = False
    """Wait where another launch trains this run, as long as it takes."""
    accept_divergence: bool = False
    """Take it for a result that the run diverges: summary.json says so, and the status is 0."""

    @property
    def settings(self) -> RunSettings:
        """What it is trained with."""
        return settings_of(self.config, self.run_id)

    @property
    def run(self) -> Run:
        """How its learners work together."""
        return self.settings.run

    @property
    def arguments(self) -> list[str]:
        """Of `hadpsgd train`."""
        return [
            *("--config", str(self.config_file), "--run-id", self.run_id, "--egs", str(self.egs)),
            *("--dev-egs", str(self.dev_egs), "--out", str(self.out)),
            *(("--initial", str(self.initial)) if self.initial else ()),
        ]


def elastic(run: Run, per_host: int) -> bool:
    """Whether the others can go on when a rank dies."""
    return not needs_all(run, per_host)


def needs_all(run: Run, per_host: int) -> str:
    """Why the others cannot go on when a rank dies; empty if they can.

    A super-learner must be on one host, whose launcher ends and starts its ranks together.
    """
    what, size = run.strategy, run.shared_gradients
    if run.learners == 1:
        return "there is no other"
    if run.simulated:
        return "one process trains all learners"
    if what == "ddp" or size == run.learners:
        return f"every step of {what} averages the gradients of all learners"
    if find(what, among=run.among).synchronous:
        return f"{run.among if what == 'hadpsgd' else what} waits for others in every round"
    if per_host % size:
        return "a super-learner that spans hosts is not replaced alone"
    return ""


def admits(run: Run) -> bool:
    """Whether a newcomer can join those that go on."""
    return run.schedule != "random-partner"


def ranks_of_host(
    wanted: Launch, env: dict[str, str], numbers: range, descriptors: list[int]
) -> Ranks:
    """The ranks that this host runs."""
    can, wants = elastic(wanted.run, len(numbers)), wanted.settings.training.lost_learner
    lost = wants if can else "stop"
    return Ranks(
        [sys.executable, "-m", "hadpsgd", "train", *wanted.arguments],
        env,
        numbers,
        wanted.run.processes,
        wanted.logs,
        replacements=wanted.restarts if lost == "replace" and admits(wanted.run) else 0,
        alone=lost != "stop",
        size=wanted.run.shared_gradients if can else 1,
        reduces=can and wanted.settings.training.member_death != "leave",
        waits=wanted.settings.training.member_death == "wait",
        needs_all=needs_all(wanted.run, len(numbers)),
        descriptors=descriptors,
        silence=wanted.settings.training.silence_limit,
    )
