"""Stages of i-vectors on features of a few made-up speakers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from hadpsgd import kaldi_io
from hadpsgd.cli import main
from hadpsgd.config import check
from hadpsgd.corpus.datadir import DataDir, Utterance
from hadpsgd.features import cmvn


def write(tmp_path: Path) -> Path:
    """Three speakers with a voice of their own, MFCC and CMVN; logmel to fuse with."""
    rng = np.random.default_rng(0)
    speaker_of = {f"s{s}-{u}": f"s{s}" for s in range(3) for u in range(4)}
    said = {u: Utterance(id=u, speaker=s, recording=u) for u, s in speaker_of.items()}
    data = DataDir(tmp_path / "data/train", said)
    data.write(data.path)
    for stream, dim in (("mfcc", 5), ("logmel", 8)):
        sums = cmvn.SpeakerStatistics(speaker_of)
        out = tmp_path / "feats" / stream / "train"
        out.mkdir(parents=True)
        with kaldi_io.Writer(ark=out / "feats.ark", scp=out / "feats.scp") as writer:
            for utterance, speaker in speaker_of.items():
                base = np.sin(np.arange(150)[:, None] * (1 + int(speaker[1])) / 9 + np.arange(dim))
                features = (base + rng.normal(0, 0.3, base.shape)).astype(np.float32)
                writer.write(utterance, features)
                sums.add(utterance, features)
        kaldi_io.write_archive(out / "cmvn.ark", sums.items(), out / "cmvn.scp")
    return tmp_path


def run(folder: Path, stage: str, out: str, *more: str, **options: object) -> int:
    """A stage there, with small sizes; `options` are of features.ivector."""
    background = {"gaussians": 8, "sample_iterations": 4, "iterations": 2}
    sizes = {"dim": 4, "input_dim": 6, "context": 1, "iterations": 3, "ubm": background}
    ivector = sizes | options
    features = {"input": ["ivector", "logmel"], "logmel": {"bins": 8}, "ivector": ivector}
    config = check({"name": "t", "corpus": {"kind": "an4"}, "features": features}, "test")
    (folder / "c.yaml").write_text(json.dumps(config.model_dump(mode="json")))
    return main([stage, "--config", f"{folder}/c.yaml", "--data", f"{folder}/data/train",
                 "--feats", f"{folder}/feats/mfcc/train", "--out", f"{folder}/{out}",
                 "--jobs", "1", *more])  # fmt: skip
