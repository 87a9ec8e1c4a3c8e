"""Wrong transcripts that `egs.misfit` finds, and right ones that it leaves out, by its threshold.

Transcripts of a share of train's utterances are given to one another; the workflow aligns what
came of it with the config's own GMM-HMM.

    .venv/bin/python benchmarks/misfit.py config/children.yaml FOLDER [--share 0.05] [--seed 1]

The config's corpus is Kaldi data directories. FOLDER keeps the data, a config and the results.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import yaml

from hadpsgd.alignment.archives import read_fits
from hadpsgd.alignment.views import low_outliers
from hadpsgd.config import load
from hadpsgd.config.corpus import Kaldi
from hadpsgd.corpus.datadir import DataDir

ROOT = Path(__file__).resolve().parents[1]
THRESHOLDS = (2.0, 2.5, 3.0, 3.5, 4.0, 5.0)


def exchanged(texts: dict[str, str], share: float, seed: int) -> dict[str, str]:
    """New transcripts of a share of the utterances: each has that of another one of them, in a
    ring; those whose words stay the same are left out."""
    chosen = random.Random(seed).sample(sorted(texts), round(share * len(texts)))
    new = {name: texts[other] for name, other in zip(chosen, chosen[1:] + chosen[:1], strict=True)}
    return {name: text for name, text in new.items() if text != texts[name]}


def with_wrong_texts(config: Path, folder: Path, share: float, seed: int) -> set[str]:
    """A config and training data in the folder; the utterances whose transcripts are wrong."""
    corpus = load(config).corpus
    if not isinstance(corpus, Kaldi):
        sys.exit(f"{config}: corpus.kind is {corpus.kind}, not kaldi")
    data = DataDir.read(corpus.train.data)
    new = exchanged({each.id: each.text for each in data}, share, seed)
    told = {each.id: replace(each, text=new.get(each.id, each.text)) for each in data}
    train = folder / "train"
    replace(data, utterances=told).write(train)
    content = yaml.safe_load(config.read_text())
    content |= {"name": "misfit", "results": str(folder / "results"), "tracking": {"uri": "none"}}
    content["corpus"]["train"] = str(train)
    (folder / "misfit.yaml").write_text(yaml.safe_dump(content))
    return set(new)


def main() -> None:
    """Align, and count at each threshold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--share", type=float, default=0.05, help="of wrong transcripts (0.05)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.folder = args.folder.absolute()  # Snakemake runs elsewhere
    wrong = with_wrong_texts(args.config, args.folder, args.share, args.seed)
    ali = args.folder / "results/misfit/ali/train"
    command = [str(Path(sys.executable).with_name("snakemake")), str(ali), "--profile", "local"]
    command += ["--configfile", str(args.folder / "misfit.yaml")]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    fits = read_fits(ali)
    aligned = len(wrong & fits.keys())
    print(f"{len(fits)} utterances aligned, {aligned} of {len(wrong)} wrong ones among them")
    print("| threshold | wrong ones left out | right ones left out |\n|---:|---:|---:|")
    for threshold in THRESHOLDS:
        found = {each.utterance for each in low_outliers(fits, deviations=threshold)[0]}
        print(f"| {threshold:g} | {len(found & wrong)} | {len(found - wrong)} |")


if __name__ == "__main__":
    main()
