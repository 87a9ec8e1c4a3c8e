"""A small task to train on: examples whose pdf-ids can be told from their features."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from hadpsgd.config import load
from hadpsgd.egs.layout import Layout
from hadpsgd.egs.precision import pack
from hadpsgd.egs.shards import describe, write_shard
from hadpsgd.training.launched import Launch

FRAMES, DIM, PDFS = 5, 6, 7


def write_egs(folder: Path, subsequences: int, seed: int) -> Path:
    """Examples as `hadpsgd egs` leaves them: a pdf-id is the largest of PDFS fixed projections."""
    folder.mkdir(parents=True, exist_ok=True)
    draws = np.random.default_rng(seed)
    features = draws.normal(size=(subsequences, FRAMES, DIM)).astype(np.float32)
    projections = np.random.default_rng(99).normal(size=(DIM, PDFS))
    labels = (features @ projections).argmax(-1).astype(np.int32)
    half = max(1, subsequences // 2)
    write_examples(folder, features, labels, pdfs=PDFS, per_shard=half, bins=DIM // 2)
    return folder


def write_examples(
    folder: Path,
    features: np.ndarray,
    labels: np.ndarray,
    *,
    pdfs: int,
    per_shard: int,
    dtype: str = "float32",
    **more: Any,
) -> None:
    """Inputs [n, frames, dim] and their pdf-ids [n, frames] as they are, in their order."""
    layout = Layout.plain(frames=features.shape[1], dim=features.shape[2], dtype=dtype)
    rows = np.zeros(len(labels), layout.exact.row)
    rows["logmel"], rows["labels"] = features, labels
    packed = [
        pack(layout, deque([rows[first : first + per_shard]]))
        for first in range(0, len(rows), per_shard)
    ]
    shards = [
        write_shard(folder / f"examples.{number:04}.npy", part.rows)
        for number, part in enumerate(packed)
    ]
    scales = [part.scales for part in packed if part.scales is not None]
    counts = np.bincount(labels.ravel(), minlength=pdfs)
    describe(folder, layout, shards, counts, scales=scales, **more)


def write_config(
    folder: Path,
    runs: list[dict[str, Any]],
    *,
    site: dict[str, Any] | None = None,
    **training: Any,
) -> Path:
    """A config of a tiny BLSTM on these examples."""
    content = {
        "name": "tiny",
        "seed": 3,
        "results": str(folder / "results"),
        "corpus": {"kind": "builtin"},
        "model": {"layers": 1, "cells": 8, "projection": 8},
        "training": {
            "epochs": 3,
            "batch": 40,
            "learning_rate": {"base": 1.0, "base_batch": 40, "anneal_after": 2},
            "momentum": 0.5,
            "threads": 1,
            "runs": runs,
            **training,
        },
        "site": {"rendezvous_seconds": 30, **(site or {})},
        "tracking": {"every_seconds": 0.2},
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def launch_of(tmp_path: Path, run: dict[str, Any], **training: Any) -> Launch:
    """A run to be started, on hosts of two learners."""
    write_egs(tmp_path / "egs", 50, 1)
    file = write_config(tmp_path, [run], site={"learners_per_node": 2}, batch=64, **training)
    config = load(file)
    egs = tmp_path / "egs"
    return Launch(
        config_file=file,
        config=config,
        run_id=config.training.runs[0].id,
        egs=egs,
        dev_egs=egs,
        out=tmp_path / "o",
        logs=tmp_path / "l",
    )
