"""Resolve pyproject.toml into requirements.lock and write the conda environment from it.

Run by `make lock`. torch pins its own CUDA packages exactly, and a CPU build has none, so they
are left out of the lock: the pin of torch decides them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
CONDA = ROOT / "envs" / "hadpsgd.yaml"
PULLED_BY_TORCH = ("nvidia-", "cuda-", "triton")
OWN = ("nvidia-ml-py==",)
"""Required here, whatever torch pulls."""
HEADER = "# Made by `make lock` from pyproject.toml. torch's CUDA packages are pinned by torch.\n"


def resolve() -> list[str]:
    """One pin a line, for Linux and macOS, Python 3.11 to 3.13."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "--universal", "--no-annotate"]
    command += ["--no-header", "--python-version", "3.11", "--all-extras"]
    command += [str(ROOT / "pyproject.toml")]
    pins = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    kept = [pin for pin in pins if pin.startswith(OWN) or not pin.startswith(PULLED_BY_TORCH)]
    return [pin for pin in kept if not for_windows_alone(pin)]


def for_windows_alone(pin: str) -> bool:
    """Not so of a pin that names Windows among others, or by `!=`."""
    return "sys_platform == 'win32'" in pin and " or " not in pin


def conda_environment(pins: list[str]) -> str:
    """The conda environment with the same pins, for `snakemake --sdm conda`."""
    lines = ["# Made by `make lock`: the same pins as requirements.lock.", "name: hadpsgd"]
    lines += ["channels:", "  - conda-forge", "dependencies:", "  - python =3.11", "  - pip"]
    lines += ["  - pip:", *(f'      - "{pin}"' for pin in pins)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    pins = resolve()
    LOCK.write_text(HEADER + "\n".join(pins) + "\n")
    CONDA.write_text(conda_environment(pins))
