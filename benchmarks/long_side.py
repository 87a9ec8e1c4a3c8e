"""An unsegmented side of ten minutes through features, decoding, scoring and error analysis.

`python benchmarks/long_side.py RESULTS [--minutes 10] [--pdfs 32000] [--out FOLDER]`

RESULTS is a finished `results/NAME` (config/tiny.yaml will do): its test sets' speech, repeated as
often as it takes, is one utterance of one recording. The network gets as many outputs as asked: its
own, spread out, and others that never win, so that it says the same. Prints a table of seconds and
peak memory of every stage, as JSON too (FOLDER/report.json).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
import yaml

from hadpsgd.config import load
from hadpsgd.corpus.datadir import AudioReader, DataDir
from hadpsgd.graph.transitions import Transitions
from hadpsgd.lm import arpa
from hadpsgd.models.blstm import BLSTM
from hadpsgd.models.build import load_model, save_model

NEVER = 1e-12  # a share of frames so small that the output counts as unlikely


def concatenated(source: Path, folder: Path, minutes: float, rate: int, known: set[str]) -> int:
    """A data directory of one utterance, of known words; their number."""
    data = DataDir.read(source)
    parts: list[np.ndarray] = []
    words: list[str] = []
    samples, wanted = 0, int(60 * minutes * rate)
    with AudioReader(data, rate) as reader:
        kept = (entry for entry in data if known.issuperset(entry.words))
        said = [(reader.read(entry), entry.words) for entry in kept]
    while samples < wanted:
        for audio, text in said:
            if samples < wanted:
                parts.append(audio)
                words += text
                samples += len(audio)
    folder.mkdir(parents=True)
    samples_16 = np.concatenate(parts).astype(np.int16)  # they are read in 16-bit steps
    soundfile.write(folder / "side.wav", samples_16, rate, subtype="PCM_16")
    (folder / "wav.scp").write_text(f"side {folder.resolve()}/side.wav\n")
    (folder / "utt2spk").write_text("side side\n")
    (folder / "spk2utt").write_text("side side\n")
    (folder / "text").write_text(f"side {' '.join(words)}\n")
    return len(words)


def spread(model: Path, graph: Path, out: Path, pdfs: int) -> tuple[Path, Path]:
    """Model and graph with so many pdfs, of which the own ones are every so many."""
    net, meta = load_model(model)
    step = pdfs // meta.num_pdfs
    own = torch.arange(meta.num_pdfs) * step
    wide = BLSTM(meta.model_config, input_dim=meta.input_dim, num_pdfs=pdfs)
    wide.lstm, wide.projection = net.lstm, net.projection
    priors = torch.full((pdfs,), math.log(NEVER))
    priors[own] = meta.log_priors
    with torch.no_grad():
        wide.output.weight.zero_()
        wide.output.bias.fill_(-30.0)
        wide.output.weight[own], wide.output.bias[own] = net.output.weight, net.output.bias
    save_model(out / "final.pt", wide, replace(meta, num_pdfs=pdfs, log_priors=priors))
    copy = out / "graph"
    copy.mkdir()
    for path in graph.iterdir():
        if path.name != "transitions.npz":
            (copy / path.name).symlink_to(path.resolve())
    transitions = Transitions.read(graph / "transitions.npz")
    numbers = (transitions.pdf * step).astype(np.int32)
    numbers[0] = pdfs - 1  # of no transition-id: it says how many there are
    replace(transitions, pdf=numbers).write(copy / "transitions.npz")
    return out / "final.pt", copy


def run(*arguments: object) -> dict[str, float]:
    """Run a stage: seconds, processor seconds, peak memory in MiB. Ends where it fails."""
    words = [sys.executable, "-m", "hadpsgd", *map(str, arguments)]
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(words, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        said.seek(0)
        if status:
            sys.exit(f"{' '.join(words)}\n{said.read()[-3000:]}")
    row = {
        "seconds": round(time.monotonic() - began, 1),
        "processor_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_mib": round(used.ru_maxrss / 1024),
    }
    print(f"{arguments[0]:16} {row}", file=sys.stderr, flush=True)
    return row


def measured(args: argparse.Namespace, out: Path) -> dict[str, Any]:
    """All stages."""
    results = args.results
    config = out / "config.yaml"
    content = yaml.safe_load((results / "config.yaml").read_text())
    content["scoring"]["nist_tools"] = False  # sclite takes minutes of a segment so long
    out.mkdir(parents=True, exist_ok=True)
    config.write_text(yaml.safe_dump(content))
    settings = load(config)
    model = next(results.glob(f"runs/{args.run or '*'}/final.pt"))
    tests = results / "corpus/data" / next(iter(settings.tests))
    rate = settings.features.sample_rate
    report: dict[str, Any] = {"minutes": args.minutes, "pdfs": args.pdfs}
    known = {n.words[0] for n in arpa.read(results / "lm/full.arpa.gz") if len(n.words) == 1}
    report["words"] = concatenated(tests, out / "data/long", args.minutes, rate, known)
    model, graph = spread(model, results / "graph", out, args.pdfs)
    (out / "score").mkdir()
    tuned = out / "score/tuned.json"
    tuned.write_text('{"lm_weight": 10, "word_penalty": 0}')
    stages: dict[str, dict[str, float]] = {}
    data, both = out / "data/long", ["--config", config]
    for stream in settings.features.input:
        made = out / "feats" / stream / "long"
        stages["features"] = run(
            "features", *both, "--stream", stream, "--data", data, "--out", made
        )
    network = [*both, "--model", model, "--graph", graph, "--streams", out / "feats"]
    stages["decode"] = run(
        "decode", *network, "--data", data, "--out", out / "decode/long", "--jobs", 1
    )
    lattices = [*both, "--decode", out / "decode/long", "--data", data]
    stages["tune"] = run("tune", *lattices, "--out", out / "tuned.json")
    lattices += ["--tuned", tuned]
    stages["score"] = run("score", *lattices, "--out", out / "score/long")
    stages["nbest"] = run("nbest", *lattices, "--out", out / "nbest")
    stages["error-analysis"] = run(
        "error-analysis", *network, "--sets", "long", "--data", out / "data", "--decode",
        out / "decode", "--score", out / "score", "--jobs", 1, "--out", out / "errors",
    )  # fmt: skip
    scored = json.loads((out / "score/long/wer.json").read_text())
    report |= {key: scored[key] for key in ("wer", "sub", "del", "ins", "unaligned")}
    report["causes"] = json.loads((out / "errors/errors.json").read_text())["long"]["causes"]
    report["lattice_mib"] = round((out / "decode/long/lat.1.gz").stat().st_size / (1 << 20), 1)
    report["stages"] = stages
    report["own_peak_mib"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return report


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--run", default="", help="folder in runs/ (the first)")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--pdfs", type=int, default=32_000)
    parser.add_argument("--out", type=Path, help="folder to keep (a temporary one)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = args.out or Path(folder)
        report = measured(args, out)
        (out / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
