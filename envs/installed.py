"""Install what requirements.lock pins, in two processes.

Run by `make setup`. pip unpacks on one core. Half of the lock each, nothing resolved, takes half of
the time; a last pip sees that all is there, adds what the lock leaves to its packages (torch's CUDA
packages), and says what is wrong if anything is.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

LOCK = Path("requirements.lock")
INSTALL = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
INSTALL += ["--no-compile"]  # envs/compiled.py compiles


def halves(lock: str) -> list[str]:
    """Two files of requirements of one: every other line, so that large packages are in both."""
    pins = [line for line in lock.splitlines() if line and not line.startswith("#")]
    return ["\n".join(pins[first::2]) + "\n" for first in range(2)]


def main() -> int:
    """Exit status of the last pip."""
    with tempfile.TemporaryDirectory() as folder:
        running = []
        for number, half in enumerate(halves(LOCK.read_text("utf-8"))):
            file = Path(folder) / f"{number}.txt"
            file.write_text(half, "utf-8")
            command = [*INSTALL, "--no-deps", "--requirement", str(file)]
            running.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        for process in running:
            process.wait()  # what fails here fails below, with its message
    return subprocess.call([*INSTALL, "--requirement", str(LOCK)])


if __name__ == "__main__":
    sys.exit(main())
