"""A real Slurm of three nodes on this host, for the tests that ask for `slurm`."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "tests" / "slurm" / "cluster.sh"
DAEMONS = ("munged", "slurmctld", "slurmd", "sbatch")
INSTALL = "apt-get install -y --no-install-recommends slurm-wlm munge"


@dataclass(frozen=True)
class Slurm:
    """A running cluster: nodes n1 to n3, partitions `main` and `preemptible`."""

    folder: Path

    @property
    def env(self) -> dict[str, str]:
        """For processes that talk to it; the project's programs are in PATH."""
        kept = {name: v for name, v in os.environ.items() if not name.startswith("SLURM_")}
        path = f"{self.folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        return kept | {"PATH": path, "OMP_NUM_THREADS": "1", "KALDI_ROOT": "unset"}

    def __call__(self, *command: str, cwd: Path = ROOT, check: bool = True) -> str:
        """Output of a command."""
        done = subprocess.run(
            command, env=self.env, cwd=cwd, capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def state(self, job: str) -> str:
        """PENDING, RUNNING, COMPLETED, ..."""
        return self("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip()

    def wait(self, job: str, *states: str, seconds: float = 60) -> str:
        """Until the job is in one of these states (or over); the state."""
        wanted = states or ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        until(lambda: self.state(job) in wanted, seconds, lambda: f"{job}: {self.state(job)}")
        return self.state(job)


def until(
    condition: Callable[[], bool], seconds: float, explain: Callable[[], str] = lambda: ""
) -> None:
    """Wait for a condition; AssertionError if it does not come true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {explain()}"
        time.sleep(0.2)


@contextmanager
def cluster() -> Iterator[Slurm]:
    """Start a cluster, stop it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # short: it holds sockets
    try:
        _start(folder)
        yield Slurm(folder)
    finally:
        subprocess.run([SCRIPT, "stop", folder], check=False, timeout=300)
        shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path) -> None:
    for again in (True, True, False):  # somebody may have one of the ports
        port = random.SystemRandom().randrange(15000, 31000, 400)
        env = os.environ | {"TEST_SLURM_PORT": str(port)}
        if subprocess.run([SCRIPT, "start", folder], check=not again, env=env).returncode == 0:
            return
        subprocess.run([SCRIPT, "stop", folder], check=False, timeout=300)
        shutil.rmtree(folder)
        folder.mkdir()


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    """A cluster for the whole session."""
    missing = [daemon for daemon in DAEMONS if shutil.which(daemon) is None]
    if missing:
        pytest.skip(f"no Slurm here ({', '.join(missing)} not found): {INSTALL}")
    if os.geteuid() != 0:
        pytest.skip("starting a Slurm for tests needs root")
    with cluster() as running:
        yield running
