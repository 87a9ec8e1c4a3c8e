"""The settings that a workflow's jobs go by: the config as it was when the workflow started.

Parsing a Snakefile writes nothing. Once a workflow has the lock of its results it writes
`configs/<hash>.yaml` there, the resolved config, which rules' shell lines name. Snakemake parses
the Snakefile again in the processes that it starts for jobs (Slurm, groups): these go by that
file, whatever has become of the user's YAML meanwhile.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hadpsgd.config import Config, check, load
from hadpsgd.config.command import resolved
from hadpsgd.config.load import content_of
from hadpsgd.files import write_text
from hadpsgd.origins import Origin, note, of_workflow

VARIABLE = "HADPSGD_CONFIG"
"""Environment variable with the snapshot's path; of a module of another workflow with the
module's name behind it, so that each has its own."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A config and where it lies for jobs."""

    config: Config
    text: str
    """Resolved, as YAML."""
    variable: str
    """Environment variable that tells jobs' processes of it."""
    handed: bool
    """Whether this process has it from the one that started the workflow."""
    origin: Origin
    """Where a start has it from."""

    @property
    def out(self) -> Path:
        """The results folder."""
        return Path(self.config.results) / self.config.name

    @property
    def path(self) -> Path:
        """Named by the content: no start of a workflow writes over what jobs read."""
        digest = hashlib.sha256(self.text.encode()).hexdigest()
        return self.out / "configs" / f"{digest[:16]}.yaml"

    @property
    def sources(self) -> Path:
        """Beside it, what `hadpsgd.sources.Digests` writes for the same processes."""
        return self.path.with_suffix(".sources.json")

    def write(self) -> None:
        """Write it, and a copy beside the results for people; only for who has the lock.

        Raises:
            UserError: it cannot be written there.
        """
        for path in (self.path, self.out / "config.yaml"):
            if not path.is_file() or path.read_text(encoding="utf-8") != self.text:
                write_text(path, self.text)
        note(self.path, self.origin)

    def hand_on(self, workflow: Any) -> None:
        """Have the processes of this workflow's jobs go by it.

        Also in place of the config files: one that is being edited may not even be YAML.
        """
        os.environ[self.variable] = str(self.path)
        workflow.register_envvars(self.variable)  # for executors that pass on nothing else
        if self.variable == VARIABLE:  # those of a workflow that has ours as a module are its own
            workflow.config_settings.configfiles = [self.path.absolute()]


def snapshot(workflow: Any, config: dict[str, Any]) -> Snapshot:
    """What this process goes by: in a job's process what was handed on, else the given config.

    Raises:
        UserError: the config is not valid, or what was handed on is gone.
    """
    modules = _modules(workflow)
    variable = "_".join([VARIABLE, *modules])
    handed = "" if workflow.is_main_process else os.environ.get(variable, "")
    if not handed and not modules:  # Snakemake takes the last of two equal keys, unsaid
        for path in dict.fromkeys(map(str, workflow.configfiles)):
            content_of(Path(path))
    checked = load(handed) if handed else check(config, "config")
    return Snapshot(
        config=checked,
        text=resolved(checked),
        variable=variable,
        handed=bool(handed),
        origin=of_workflow(workflow, modules),
    )


def _modules(workflow: Any) -> list[str]:
    """Names of the modules that are being read, from the outside in."""
    names: list[str | None] = []
    modifier = workflow.modifier
    while modifier is not None:
        names.insert(0, modifier.namespace)
        modifier = modifier.parent_modifier
    return [name for name in names if name]
