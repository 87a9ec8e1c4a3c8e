"""Which training it is: a hash of what decides its weights, and where that is written.

Without torch, unless weights to begin with are read: a launcher of one process needs no more.
"""

from __future__ import annotations

import json
from pathlib import Path

from hadpsgd.config import Config, RunSettings, fingerprint, run_fingerprint, settings_of
from hadpsgd.config.stage import StageRun
from hadpsgd.errors import UserError
from hadpsgd.files import sha256
from hadpsgd.tracking.results import SUMMARY


def identity(config: Config, run_id: str, egs: Path, *, initial: Path | None = None) -> str:
    """Hash of what decides the weights; `initial` are those that a stage goes on from.

    Raises:
        UserError: no examples, or weights to begin with where there are none, or the reverse.
    """
    meta = egs / "meta.json"
    if not meta.is_file():
        raise UserError("no examples here", where=egs, fix="`hadpsgd egs` makes them")
    check_begin(settings_of(config, run_id), initial)
    return fingerprint([run_fingerprint(config, run_id), sha256(meta), *_weights(initial)])


def _weights(initial: Path | None) -> list[str]:
    if initial is None:
        return []
    from hadpsgd.models.build import weights_of

    return [weights_of(initial)]


def check_begin(settings: RunSettings, initial: Path | None) -> None:
    """Whether weights to begin with are given where they are needed, and there alone.

    Raises:
        UserError: they are not.
    """
    if isinstance(run := settings.run, StageRun):
        if initial is None:
            raise UserError(
                f"run '{run.id}' goes on from the weights of '{run.after.id}'",
                fix="Give its final.pt: --initial FILE",
            )
    elif initial is not None:
        raise UserError(
            f"run '{run.id}' begins with weights of its own", fix="Leave --initial away"
        )


def checkpoint_folder(config: Config, *, run_id: str, hash_: str) -> Path:
    """Where the checkpoints of a run lie, apart from the outputs of its rule."""
    return Path(config.results) / "checkpoints" / config.name / f"{run_id}-{hash_}"


def done(out: Path, hash_: str, *, diverged: bool = False) -> bool:
    """Whether a folder holds the results of the run with this identity.

    `diverged`: that it diverged is a result, too.
    """
    summary = out / SUMMARY
    if not (summary.is_file() and (out / "final.pt").is_file()):
        return False
    found = json.loads(summary.read_text(encoding="utf-8"))
    return found.get("identity") == hash_ and (diverged or "diverged" not in found)
