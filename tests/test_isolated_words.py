"""A corpus of isolated words through the workflow, without a setting about language models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent


def run(*command: str) -> str:
    """What a program says; it must succeed."""
    environment = {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "MLFLOW_TRACKING_URI": "none",
        "OMP_NUM_THREADS": "1",
    }
    ran = subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return ran.stdout + ran.stderr


@pytest.mark.slow
def test_one_word_a_file(tmp_path: Path) -> None:
    """No text has n-grams of the order asked for; ten words of a grammar without any are told
    apart all the same."""
    make = ("python", "benchmarks/isolated_words.py", str(tmp_path), "--files", "150")
    run(*make)
    file = tmp_path / "words.yaml"
    assert "lm" not in yaml.safe_load(file.read_text())
    run("snakemake", "--profile", "local", "--cores", "2", "--configfile", str(file))
    out = tmp_path / "results/words"
    assert json.loads((out / "lm/report.json").read_text())["order"] == 3
    assert "order 3, not 4: the longest sentence of" in (out / "logs/lm.log").read_text()
    scored = [json.loads(path.read_text()) for path in out.glob("score/*/test/wer.json")]
    assert [each["words"] for each in scored] == [30]
    assert scored[0]["wer"] < 50.0
