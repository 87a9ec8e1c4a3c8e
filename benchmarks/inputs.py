"""What each part of the input is worth: one network for logmel, with i-vectors, with FMLLR, all.

    .venv/bin/python benchmarks/inputs.py config/an4_full.yaml [--epochs 16] [--jobs 2]
        [--inputs fmllr+logmel fmllr+ivector+logmel] [--seeds 1 2 3]

CONFIG's input lists all streams. Snakemake makes them, alignments and graph under the config's
results, with the config's seed; then, for every input and seed of the network, examples, network,
lattices and scores lie under `inputs/` there. The table has the held-out frame accuracy and the
word error rate of every test set.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import yaml
from commands import hadpsgd

from hadpsgd.config import Config, load

INPUTS = (
    ["logmel"],
    ["ivector", "logmel"],
    ["fmllr", "logmel"],
    ["fmllr", "ivector", "logmel"],
)


def copies(config: Config) -> list[str]:
    """The set of training speech at other speeds, if the config has any."""
    return ["train_perturbed"] if config.corpus.speeds != [1.0] else []


def prepare(path: Path, config: Config, jobs: int) -> Path:
    """Streams, alignments and graph by Snakemake; returns the folder of results."""
    out = Path(config.results) / config.name
    sets = ["train", "dev", *config.tests, *copies(config)]
    targets = [f"{out}/feats/{stream}/{name}" for stream in INPUTS[-1] for name in sets]
    targets += [f"{out}/ali/train", f"{out}/ali/dev", f"{out}/graph"]
    options = ["--profile", "local", "--cores", jobs, "--configfile", path]
    command = ["snakemake", *targets, *options]
    path_of_tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path_of_tools}
    subprocess.run([str(word) for word in command], env=environment, stdout=sys.stderr, check=True)
    return out


def measure(
    path: Path, config: Config, out: Path, streams: list[str], seed: int, jobs: int
) -> list[str]:
    """Train and decode with an input; a row of the table."""
    work = out / "inputs" / "+".join(streams) / f"seed-{seed}"
    work.mkdir(parents=True, exist_ok=True)
    content = yaml.safe_load(path.read_text())
    content.setdefault("features", {})["input"] = streams
    content["name"] = f"{config.name}-{'-'.join(streams)}"
    content["seed"] = seed
    content.setdefault("training", {})["epochs"] = config.training.epochs
    common = ("--config", work / "config.yaml")
    (work / "config.yaml").write_text(yaml.safe_dump(content))
    run = config.training.members[0].id
    perturbed = [("--perturbed", out / "corpus/data" / name) for name in copies(config)]
    for name, more in (("train", sum(perturbed, ())), ("dev", ("--held-out",))):
        hadpsgd("egs", *common, "--data", out / "corpus/data" / name, "--streams", out / "feats",
                "--ali", out / "ali" / name, "--out", work / "egs" / name, *more)  # fmt: skip
    wall, _ = hadpsgd("launch", *common, "--run-id", run, "--egs", work / "egs/train",
                      "--dev-egs", work / "egs/dev", "--out", work / "run",
                      "--logs", work / "logs")  # fmt: skip
    for name in ("dev", *config.tests):
        hadpsgd("decode", *common, "--model", work / "run/final.pt", "--graph", out / "graph",
                "--data", out / "corpus/data" / name, "--streams", out / "feats",
                "--out", work / "decode" / name, "--jobs", jobs)  # fmt: skip
    tuned = work / "tuned.json"
    hadpsgd("tune", *common, "--decode", work / "decode/dev", "--data", out / "corpus/data/dev",
            "--out", tuned)  # fmt: skip
    rates = []
    for name in ("dev", *config.tests):
        hadpsgd("score", *common, "--decode", work / "decode" / name, "--tuned", tuned,
                "--data", out / "corpus/data" / name, "--out", work / "score" / name)  # fmt: skip
        score = json.loads((work / "score" / name / "wer.json").read_text())
        rates.append(f"{score['wer']:.2f}")
    summary = json.loads((work / "run/summary.json").read_text())
    dim = json.loads((work / "egs/train/meta.json").read_text())["dim"]
    accuracy = 100 * float(summary["heldout_accuracy"])
    return [" + ".join(streams), str(dim), str(seed), f"{accuracy:.2f}", *rates, f"{wall:.0f}"]


def main() -> None:
    """Measure all inputs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", type=Path)
    parser.add_argument("--epochs", type=int, help="instead of the config's")
    parser.add_argument("--jobs", type=int, default=2)
    names = ["+".join(streams) for streams in INPUTS]
    parser.add_argument("--inputs", nargs="+", choices=names, default=names)
    parser.add_argument("--seeds", type=int, nargs="+", help="of the network (the config's)")
    args = parser.parse_args()
    config = load(args.config)
    if args.epochs:
        training = config.training.model_copy(update={"epochs": args.epochs})
        config = config.model_copy(update={"training": training})
    if set(config.features.input) != set(INPUTS[-1]):
        sys.exit(f"{args.config}: features.input must list {', '.join(INPUTS[-1])}")
    out = prepare(args.config, config, args.jobs)
    sets = [f"WER {name} (%)" for name in ("dev", *config.tests)]
    heads = ["input", "dim", "seed", "held-out frames right (%)", *sets, "training (s)"]
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads), flush=True)
    for name, seed in itertools.product(args.inputs, args.seeds or [config.seed]):
        row = measure(args.config, config, out, name.split("+"), seed, args.jobs)
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
