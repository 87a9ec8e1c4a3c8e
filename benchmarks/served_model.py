"""A logged model in a fresh environment: what `mlflow models serve` answers, and what it takes.

    python benchmarks/served_model.py models:/demo@champion talk.wav

Makes a virtual environment of the model's own requirements.txt (gigabytes, minutes), serves the
model in it, without this project, and sends it each recording as a file and as samples. The store
is MLFLOW_TRACKING_URI; a model's folder will do, too. `--environment DIR` keeps the environment.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlflow.artifacts
import soundfile

PORT = 5055
PATIENCE = 600.0  # seconds until the server must answer


def main() -> None:
    """Print what was heard, and seconds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="URI or folder of a model")
    parser.add_argument("recordings", type=Path, nargs="+")
    parser.add_argument("--environment", type=Path, help="a folder, to keep the environment")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(args.model)
        if not model.is_dir():
            model = Path(mlflow.artifacts.download_artifacts(args.model, dst_path=folder))
        environment = args.environment or Path(folder) / "environment"
        began = time.monotonic()
        _make(environment, model / "requirements.txt")
        print(f"environment: {time.monotonic() - began:.0f} s")
        with _served(environment, model) as address:
            for path in args.recordings:
                _ask(address, path)


def _make(environment: Path, requirements: Path) -> None:
    """A virtual environment with the requirements, and nothing else."""
    venv.create(environment, with_pip=True)
    pip = [str(environment / "bin" / "python"), "-m", "pip"]
    subprocess.run([*pip, "install", "--quiet", "-r", str(requirements)], check=True)


@contextmanager
def _served(environment: Path, model: Path) -> Iterator[str]:
    """`mlflow models serve` in the environment; its address."""
    programs = environment.absolute() / "bin"
    command = [str(programs / "mlflow"), "models", "serve", "-m", str(model.absolute())]
    command += ["--env-manager", "local", "--port", str(PORT)]
    env = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    env.pop("PYTHONPATH", None)
    began = time.monotonic()
    server = subprocess.Popen(command, cwd=environment, env=env, start_new_session=True)
    try:
        while not _answers(f"http://127.0.0.1:{PORT}/ping"):
            if server.poll() is not None or time.monotonic() > began + PATIENCE:
                sys.exit("the server does not answer")
            time.sleep(1)
        print(f"server: {time.monotonic() - began:.0f} s")
        yield f"http://127.0.0.1:{PORT}/invocations"
    finally:
        os.killpg(server.pid, 9)
        server.wait()


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _ask(address: str, path: Path) -> None:
    """Send a recording as base64 and as samples of its first channel; print the answers."""
    samples, rate = soundfile.read(path, always_2d=True)
    rows: dict[str, dict[str, Any]] = {
        "audio": {"audio": base64.b64encode(path.read_bytes()).decode()},
        "samples": {"samples": samples[:, 0].tolist(), "sampling_rate": rate},
    }
    for name, row in rows.items():
        content = json.dumps({"dataframe_records": [row]}).encode()
        head = {"Content-Type": "application/json"}
        began = time.monotonic()
        with urllib.request.urlopen(urllib.request.Request(address, content, head)) as answer:
            (heard,) = json.load(answer)["predictions"]
        seconds = time.monotonic() - began
        print(f"{path.name} as {name}: {heard['seconds']} s of audio in {seconds:.1f} s")
        print(f"  {heard['text'].strip()}")
        print(f"  {heard['words'][:2]}")


if __name__ == "__main__":
    main()
