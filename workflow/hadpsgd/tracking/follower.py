"""A process beside training that carries its curves to MLflow.

Training calls `start` and only writes files. The follower reads them every few seconds; it ends
when training ends or dies (its standard input closes), after it has caught up.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from hadpsgd.config import Config
from hadpsgd.errors import UserError
from hadpsgd.tracking import arithmetic, handover, identity, system, training_run
from hadpsgd.tracking.curves import Curves
from hadpsgd.tracking.events import Finish, Status
from hadpsgd.tracking.recorder import Connection, Recorder, upload_others, warn
from hadpsgd.tracking.uri import is_on

LAST_UPLOAD_SECONDS = 60.0
"""Training waits at most this long for the follower at its end."""
INTERRUPTED_SECONDS = 15.0
"""And this long if it was told to stop: the scheduler is about to kill it (Slurm's KillWait is
usually 30 s), and whoever comes next sends what is missing."""


class Session:
    """A tracked training, for the one thing that files do not tell."""

    status: Status = "FINISHED"

    def interrupted(self) -> None:
        """Training stops here to be taken up again later."""
        self.status = "KILLED"


def announce(config: Config, run_id: str, *, checkpoints: Path, out: Path) -> None:
    """Note that the run exists, and that it was killed unless somebody says more.

    Called first thing, long before MLflow is connected. Whatever comes next with this store (a
    follower, `hadpsgd track`) uploads it from the spool. Never raises for MLflow's sake.

    Raises:
        UserError: no space, or no permission to write.
    """
    handover.take_over(config, run_id, checkpoints=checkpoints, out=out)
    _publish_key(checkpoints, out)
    if not is_on(config):
        return
    who = identity.read_or_create(checkpoints)
    try:
        recorder = Recorder(Connection(config), who.key)
    except UserError as error:
        warn(str(error))
        return
    recorder.announce(training_run.begin(config, run_id, checkpoints, who), _finish("KILLED"))


def failed(config: Config, checkpoints: Path) -> None:
    """An announced run ended in an error.

    Said whether its follower has said so or not: until there was one, any other run's `track` may
    have sent the last word that announced it, "killed".
    """
    if is_on(config):
        _leave_last_word(config, checkpoints, "FAILED")


@contextmanager
def start(
    config: Config, config_file: Path, run_id: str, *, checkpoints: Path, metrics: Path, rank: int
) -> Iterator[Session]:
    """Track a training run while the block runs. Every rank enters it; rank 0 has the follower.

    `metrics` is the metrics.jsonl that rank 0 appends to. `checkpoints` is the folder that
    outlives a killed training: the run's key lies there, so that a resumed training goes on in
    the same MLflow run. Key and provenance are copied beside `metrics`.
    Nothing here raises for MLflow's sake, and training waits for it only at its end.
    """
    session = Session()
    with contextlib.ExitStack() as stack:
        if rank == 0:
            announce(config, run_id, checkpoints=checkpoints, out=metrics.parent)
            stack.callback(_publish_provenance, checkpoints, metrics.parent)
            if is_on(config):
                follower = _follower(session, config, config_file, run_id, checkpoints, metrics)
                stack.enter_context(follower)
            else:
                training_run.write_provenance(config, checkpoints)
        if config.tracking.system_metrics:
            stack.enter_context(
                system.sampled(
                    metrics.parent, rank=rank, every_seconds=config.tracking.every_seconds
                )
            )
        yield session


@contextmanager
def _follower(
    session: Session,
    config: Config,
    config_file: Path,
    run_id: str,
    folder: Path,
    metrics: Path,
) -> Iterator[None]:
    command = [sys.executable, "-m", "hadpsgd", "track", "--follow", "--config", str(config_file)]
    command += ["--run", run_id, "--dir", str(folder), "--metrics", str(metrics)]
    # it would load PyTorch, two seconds of a processor, for these alone
    command += ["--arithmetic", json.dumps(arithmetic.of_torch())]
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    except OSError as error:
        warn(f"no follower ({error}); `hadpsgd track` uploads the run later")
        yield
        return
    try:
        yield
    except BaseException as error:
        session.status = "FAILED" if isinstance(error, Exception) else "KILLED"
        raise
    finally:
        if not _end(process, session.status):
            _leave_last_word(config, folder, session.status)


def _publish_key(checkpoints: Path, out: Path) -> None:
    """The run's key beside its results; what an earlier run left there goes."""
    who = identity.read_or_create(checkpoints)
    if identity.read(out) == who:
        return
    for old in (*(out / name for name in training_run.PROVENANCE), *out.glob(system.PATTERN)):
        old.unlink(missing_ok=True)
    identity.write(out, who)


def _publish_provenance(checkpoints: Path, out: Path) -> None:
    """Put the provenance beside the results."""
    for name in training_run.PROVENANCE:
        if (checkpoints / name).is_file():
            shutil.copyfile(checkpoints / name, out / name)


def _end(process: subprocess.Popen[bytes], status: Status) -> bool:
    """Tell the follower how training ended; False if it did not get that into store or spool."""
    seconds = INTERRUPTED_SECONDS if status == "KILLED" else LAST_UPLOAD_SECONDS
    try:
        process.communicate(status.encode(), timeout=seconds)
    except (OSError, subprocess.TimeoutExpired):  # it died, or the store is very slow
        process.kill()
        process.wait()
    return process.returncode == 0


def _leave_last_word(config: Config, checkpoints: Path, status: Status) -> None:
    with contextlib.suppress(OSError, UserError):
        who = identity.read_or_create(checkpoints)
        Recorder(Connection(config), who.key).leave_last_word(_finish(status))


def follow(
    config: Config,
    run_id: str,
    *,
    checkpoints: Path,
    metrics: Path,
    orders: IO[bytes],
    torchs: Mapping[str, str] | None = None,
) -> None:
    """The follower: send what training writes until `orders` ends, then its last word as status.

    An end without a word means that training was killed. `torchs`: `arithmetic.of_torch()` of the
    training.
    """
    with contextlib.suppress(OSError):
        os.nice(5)  # training goes first
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)  # they are meant for training, which tells us
    ended = _Ended(orders)
    who = identity.read_or_create(checkpoints)
    connection = Connection(config)
    recorder = Recorder(connection, who.key)
    with recorder.spool.followed():  # after the end of an earlier one
        try:
            training_run.write_provenance(config, checkpoints, torchs)
        except (OSError, UserError) as error:
            warn(f"no provenance: {error}")
        beginning = training_run.begin(config, run_id, checkpoints, who)
        recorder.leave_last_word(_finish("KILLED"))
        if recorder.send([*beginning, _finish("RUNNING")], now=True):
            upload_others(connection)
        curves = Curves(metrics, who, config.tracking.every_seconds)
        while not ended.wait(config.tracking.every_seconds):
            events = list(curves.new())
            if events:
                recorder.send(events)
                recorder.leave_last_word(_finish("KILLED"))
        end = _finish(ended.status)
        recorder.leave_last_word(end)
        if recorder.send([*curves.new(ended=True), end], now=True):
            recorder.spool.take_back_last_word()


def _finish(status: Status) -> Finish:
    return Finish(status=status, time_ms=int(time.time() * 1000))


class _Ended:
    """Waits for the end of standard input, or for another parent than the first."""

    def __init__(self, orders: IO[bytes]) -> None:
        self.status: Status = "KILLED"
        self._event = threading.Event()
        self._parent = os.getppid()
        threading.Thread(target=self._read, args=(orders,), daemon=True).start()

    def wait(self, seconds: float) -> bool:
        return self._event.wait(seconds) or os.getppid() != self._parent

    def _read(self, orders: IO[bytes]) -> None:
        word = orders.read().decode(errors="replace").strip()
        if word in ("FINISHED", "FAILED"):
            self.status = word  # type: ignore[assignment]
        self._event.set()
