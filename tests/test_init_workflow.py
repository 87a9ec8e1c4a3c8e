"""What `hadpsgd init` writes for an hour of speech, run whole by Snakemake on minutes of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from hadpsgd.cli import main
from hadpsgd.config.sizes import Size, size_for
from hadpsgd.setup import template

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
SPEECH = {
    "kind": "builtin",
    "train_minutes": 4,
    "dev_minutes": 0.7,
    "test_minutes": 0.7,
    "speakers": 8,
    "lm_sentences": 300,
}
RUN, STAGE, GMM = "single", "single-lfmmi", "gmm-sat"


def small(_: float) -> Size:
    """The row for an hour, whatever the hours, with sizes for minutes."""
    return replace(
        size_for(1.0), cells=24, projection=24, epochs=2, batch=16, anneal_after=1, leaves=60,
        gaussians=200,
    )  # fmt: skip


def corpus(folder: Path) -> Path:
    """A folder of Kaldi data directories, with dict and text beside."""
    config, made, kaldi = folder / "speech.yaml", folder / "speech", folder / "kaldi"
    config.write_text(yaml.safe_dump({"name": "speech", "corpus": SPEECH}))
    assert main(["corpus", "--config", str(config), "--out", str(made)]) == 0
    kaldi.mkdir()
    for name, source in (("train", "train"), ("dev", "dev"), ("test_ch", "ch")):
        (kaldi / name).symlink_to(made / "data" / source)
    return kaldi


def fewer(written: Path) -> dict[str, Any]:
    """The config that init wrote, with less of what takes time; every part of it stays."""
    content: dict[str, Any] = yaml.safe_load(written.read_text())
    content["alignment"]["mono"] = {"gaussians": 150, "iterations": 10}
    for name in ("tri", "lda_mllt", "sat"):
        content["alignment"][name]["iterations"] = 8
    content["features"]["ivector"] = {
        "iterations": 2, "ubm": {"gaussians": 16, "iterations": 2, "sample_iterations": 4},
    }  # fmt: skip
    content["lm"]["neural"] |= {"cells": 24, "epochs": 2, "max_oov": 0.5}
    content["decoding"] |= {"beam": 9, "lattice_beam": 4, "max_active": 1000}
    return content


@pytest.mark.slow
def test_the_whole_recipe_ends_in_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Adaptation, masks, dropout, sequences, neural model, minimum Bayes risk and the GMM-HMM."""
    kaldi = corpus(tmp_path)
    monkeypatch.setattr(template, "size_for", small)
    written, lm = tmp_path / "mine.yaml", tmp_path / "speech"
    init = [
        *("init", "--kaldi", str(kaldi), "--name", "mine", "--lexicon", str(lm / "dict")),
        *("--lm-text", str(lm / "lm/train.txt"), "--out", str(written)),
        *("--data", str(tmp_path / "data")),
    ]
    assert main(init) == 0
    content = fewer(written)
    assert content["alignment"]["kind"] == "sat" and content["training"]["stages"]
    content |= {"results": str(tmp_path / "results"), "tracking": {"uri": "none"}}
    config = tmp_path / "fewer.yaml"
    config.write_text(yaml.safe_dump(content))
    programs = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        [str(BIN / "snakemake"), "--profile", "local", "--cores", "2", "--configfile", str(config)],
        cwd=ROOT,
        env={**os.environ, "PATH": programs, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-3000:]
    out = tmp_path / "results/mine"
    lines = (out / "wer.md").read_text().splitlines()
    [head] = [line for line in lines if line.startswith("| run ") and "penalty" in line]
    assert "neural LM" in head and any("words are those of minimum Bayes risk" in s for s in lines)
    for row in (RUN, STAGE, GMM):
        assert any(line.startswith(f"| {row} ") for line in lines), row
    scores = [*out.glob("score/*/test_ch/wer.json")]
    scored = {path.parts[-3].rsplit("-", 1)[0]: path for path in scores}
    assert {RUN, STAGE} <= scored.keys() and len(scored) == 3
    for path in scored.values():
        found = json.loads(path.read_text())
        assert found["words"] > 50 and found["minimum_bayes_risk"] and found["wer"] < 100, path
    # lattice-free MMI went on from cross-entropy, on inputs of 260
    after = json.loads(next(out.glob(f"runs/{STAGE}-*/summary.json")).read_text())
    before = json.loads(next(out.glob(f"runs/{RUN}-[0-9a-f]*/summary.json")).read_text())
    assert after["parameters"] == before["parameters"] > 260 * 24 * 4
