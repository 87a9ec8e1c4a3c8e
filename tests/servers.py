"""MLflow and PostgreSQL servers on loopback, for tests."""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def free_port() -> int:
    """A TCP port that nobody listens at, outside of the range that connections take theirs from."""
    while True:
        port = random.SystemRandom().randrange(15000, 32000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@contextmanager
def mlflow_server(backend: str, folder: Path, port: int | None = None) -> Iterator[str]:
    """`mlflow server` on a database, as the documentation has it; gives its URI."""
    port = port or free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--workers", "1", "--backend-store-uri", backend]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    # without the runner of jobs for language models, whose processes cost seconds
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (folder / "server.log").open("ab") as log:
        # a session of its own: its workers are ended together
        server = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            env=os.environ | quiet,
            cwd=folder,
            start_new_session=True,
        )
        try:
            _wait_for(f"http://127.0.0.1:{port}/health", server)
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(server.pid, 9)
            server.wait()


def _wait_for(address: str, server: subprocess.Popen[bytes], seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            assert server.poll() is None, "the server ended"
            time.sleep(0.3)
    raise TimeoutError(address)


def postgres_programs() -> Path | None:
    """Folder of initdb and pg_ctl, where PostgreSQL and its Python driver are installed."""
    if importlib.util.find_spec("psycopg2") is None:
        return None
    found = shutil.which("pg_ctl")
    candidates = [Path(found).resolve().parent] if found else []
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in candidates if (folder / "initdb").exists()), None)


@contextmanager
def postgres(programs: Path) -> Iterator[str]:
    """A database server of its own; gives the URI of an empty database."""
    # it refuses to run as root
    user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    folder = Path(tempfile.mkdtemp(prefix="hadpsgd-pg-"))
    if user:
        shutil.chown(folder, "postgres")
    port, data = free_port(), folder / "data"

    def control(*arguments: str) -> None:
        command = [*user, str(programs / "pg_ctl"), "-D", str(data), "-w", "-t", "180", *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)

    make = [*user, str(programs / "initdb"), "-D", str(data), "-U", "mlflow", "--auth", "trust"]
    try:
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL, cwd=folder)
        options = f"-p {port} -h 127.0.0.1 -k {folder} -c fsync=off"
        control("-o", options, "-l", str(folder / "log"), "start")
        try:
            yield f"postgresql://mlflow@127.0.0.1:{port}/postgres"
        finally:
            control("-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
