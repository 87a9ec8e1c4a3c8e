"""A results folder as the workflow leaves it, made in milliseconds, for tracking and reports."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from hadpsgd.config import Config, check, run_key
from hadpsgd.config.command import resolved
from hadpsgd.config.settings import LearningRate
from hadpsgd.models.blstm import BLSTM
from hadpsgd.models.build import ModelMeta, SavedShape, save_model
from hadpsgd.scoring import sentences
from hadpsgd.scoring.align import Edit, Kind
from hadpsgd.scoring.nist import Sentence
from hadpsgd.training.rate import rate

RUNS = ("single", "ssgd-4", "hadpsgd-2x2")
WORDS = {"dev": 900, "swb": 1000, "ch": 800}
ERRORS = {
    "single": {"dev": (30, 5, 10), "swb": (40, 8, 12), "ch": (90, 20, 40)},
    "ssgd-4": {"dev": (31, 5, 10), "swb": (42, 8, 12), "ch": (92, 20, 40)},
    "hadpsgd-2x2": {"dev": (29, 6, 10), "swb": (41, 9, 12), "ch": (95, 18, 40)},
}
EPOCHS, UPDATES, BATCH = 4, 20, 64


def make_config(results: Path, **changes: object) -> Config:
    """The demo's shape of config: three strategies on the built-in corpus."""
    content = {
        "name": "demo",
        "results": str(results),
        "corpus": {"kind": "builtin"},
        "model": {"layers": 1, "cells": 4, "projection": 3},
        "training": {
            "epochs": EPOCHS,
            "batch": BATCH,
            "runs": [
                {"strategy": "single"},
                {"strategy": "ssgd", "learners": 4},
                {"strategy": "hadpsgd", "learners": 4, "super_learner": 2},
            ],
        },
        "tracking": {"uri": f"sqlite:///{results.absolute()}/mlflow.db", "every_seconds": 0.2},
    }
    return check(content | changes, "test")


def without_models(config: Config) -> Config:
    """No model of it is registered."""
    tracking = config.tracking.model_copy(update={"register_model": False})
    return config.model_copy(update={"tracking": tracking})


def write_config(config: Config, file: Path) -> Path:
    """The config as a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(resolved(config), encoding="utf-8")
    return file


def metric_rows(run: str, start: float = 1_790_000_000.0) -> list[dict[str, float]]:
    """Rows as training writes them: one every 5 updates, held-out scores after each epoch."""
    lag = 1 + 0.05 * RUNS.index(run) if run in RUNS else 1
    rows: list[dict[str, float]] = []
    for step in range(5, EPOCHS * UPDATES + 1, 5):
        moment, epoch = start + step, step / UPDATES
        lr = rate(LearningRate(), batch=BATCH, epoch=(step - 1) / UPDATES)
        row = {"step": step, "epoch": epoch, "lr": lr, "loss": 3 * lag / (1 + epoch)}
        rows.append(row | {"frames_per_second": 5000.0, "staleness": 0.5, "time": moment})
        if step % UPDATES == 0:
            row = {"step": step, "epoch": epoch, "heldout_loss": 3.2 * lag / (1 + epoch)}
            rows.append(row | {"heldout_accuracy": 1 - 0.6 / (1 + epoch), "time": moment})
    return rows


def write_rows(file: Path, rows: list[dict[str, float]]) -> None:
    """Append rows to metrics.jsonl."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows)


def write_model(file: Path, config: Config, input_dim: int = 6, num_pdfs: int = 5) -> None:
    """A small untrained final.pt."""
    model = BLSTM(config.model, input_dim=input_dim, num_pdfs=num_pdfs)
    priors = torch.full((num_pdfs,), 1 / num_pdfs).log()
    meta = ModelMeta(SavedShape.of(config.model), input_dim, ("logmel",), num_pdfs, priors)
    save_model(file, model, meta)


def write_training(config: Config, run: str) -> Path:
    """runs/<key>/ of a finished training."""
    folder = Path(config.results) / config.name / "runs" / run_key(config, run)
    write_rows(folder / "metrics.jsonl", metric_rows(run))
    (folder / "summary.json").write_text(json.dumps({"epochs": EPOCHS, "seconds": 60.0}))
    (folder / "train.log").write_text("epoch 4\n")
    write_model(folder / "final.pt", config)
    return folder


def scored(words: int, sub: int, ins: int, dele: int) -> list[Sentence]:
    """A hundred sentences of ten speakers with that many errors, spread over them."""
    edits: list[list[Edit]] = [[] for _ in range(100)]
    for word in range(words):
        kind: Kind = "S" if word < sub else "D" if word < sub + dele else "C"
        hyp = {"S": "other", "D": None, "C": f"w{word}"}[kind]
        edits[word % 100].append(Edit(kind=kind, ref=f"w{word}", hyp=hyp))
    for word in range(ins):
        edits[word * 7 % 100].append(Edit(kind="I", ref=None, hyp=f"x{word}"))
    return [Sentence(name=f"s{i}", speaker=f"speaker{i % 10}", edits=edits[i]) for i in range(100)]


def write_scores(
    config: Config, run: str, errors: dict[str, tuple[int, int, int]] | None = None
) -> None:
    """score/<key>/: tuned.json and, for each set, wer.json and hyp.txt."""
    folder = Path(config.results) / config.name / "score" / run_key(config, run)
    folder.mkdir(parents=True, exist_ok=True)
    tuned = {"lm_weight": 10.0, "word_penalty": 0.5}
    (folder / "tuned.json").write_text(json.dumps(tuned | {"tried": [tuned | {"errors": 20}]}))
    for name, (sub, ins, dele) in (errors or ERRORS[run]).items():
        counts = {"words": WORDS[name], "sub": sub, "ins": ins, "del": dele, "sentences": 100}
        counts |= {"correct": WORDS[name] - sub - dele}
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "wer.json").write_text(json.dumps(counts))
        (folder / name / "hyp.txt").write_text("a-1 HELLO\n")
        sentences.write(folder / name / sentences.FILE, scored(WORDS[name], sub, ins, dele))


def write_benchmarks(config: Config) -> None:
    """Snakemake's benchmark files of a few rules."""
    folder = Path(config.results) / config.name / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    head = "s\th:m:s\tmax_rss\tmax_vms\tmax_uss\tmax_pss\tio_in\tio_out\tmean_load\tcpu_time\n"
    for rule, seconds, mib in (
        ("corpus", 21.5, 310.2),
        (f"train.{run_key(config, 'single')}", 95.1, 402.0),
    ):
        row = f"{seconds}\t0:00:21\t{mib}\t900\t300\t305\t0\t12\t98.1\t21.1\n"
        (folder / f"{rule}.tsv").write_text(head + row)


def write_results(results: Path) -> Config:
    """The whole folder of a finished demo."""
    config = make_config(results)
    write_config(config, results / config.name / "config.yaml")
    for run in RUNS:
        write_training(config, run)
        write_scores(config, run)
    write_benchmarks(config)
    for name in ("corpus/data/train/text", "corpus/dict/lexicon.txt", "egs/train/meta.json"):
        file = results / config.name / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{name}\n")
    return config
