"""The ladder of GMMs on AN4: time and memory of every stage, and word error rates beside Kaldi's.

Data, lang folder and language model are those of the reference (`HADPSGD_SHARED`); LM weight and
word penalty are chosen on the test set itself, as in the reference, so that figures compare.

    .venv/bin/python benchmarks/gmm_ladder.py [--out FOLDER] [--jobs 2] [--seed 1]
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from commands import hadpsgd

ROOT = Path(__file__).resolve().parents[1]
KALDI = Path(os.environ.get("HADPSGD_SHARED", ROOT.parent / "shared")).resolve() / "kaldi_an4"
STAGES = ("mono", "tri", "lda-mllt", "sat")
THEIRS = {"mono": 7.76, "tri": 6.34, "lda-mllt": 7.12, "sat": 4.01}
CONFIG = """
name: ladder
seed: {seed}
corpus: {{kind: an4}}
alignment:
  kind: sat
  tri: {{leaves: 500, gaussians: 5000}}
  lda_mllt: {{leaves: 500, gaussians: 5000}}
  sat: {{leaves: 500, gaussians: 5000}}
"""


class Ladder:
    """The stages in a folder, trained on a data set and scored on another.

    `grammar` names the language model to `hadpsgd graph`.
    """

    def __init__(
        self, folder: Path, config: str, train: Path, test: Path, grammar: Sequence[object],
        jobs: int,
    ) -> None:  # fmt: skip
        """Write the config."""
        self.folder, self.train_set, self.test_set = folder, train, test
        self.grammar, self.jobs = tuple(grammar), ("--jobs", jobs)
        folder.mkdir(parents=True, exist_ok=True)
        self.config = folder / "config.yaml"
        self.config.write_text(config)

    def train(self, stage: str, before: str | None) -> tuple[float, float]:
        """Train a stage; wall and processor seconds."""
        previous = ("--ali", self.folder / before) if before else ()
        return hadpsgd(
            stage, "--config", self.config, *data(self.train_set), "--lang", KALDI / "lang",
            *previous, "--out", self.folder / stage, *self.jobs,
        )  # fmt: skip

    def score(self, stage: str) -> Score:
        """Errors on the test set, at the weight and penalty of the fewest; SAT adapts twice."""
        model, lang = self.folder / stage, ("--lang", KALDI / "lang")
        work = self.folder / "decode" / stage
        graph = work / "graph"
        common = ("--config", self.config, "--model", model, *data(self.test_set))
        hadpsgd("graph", "--config", self.config, *lang, "--ali", model,
                *self.grammar, "--out", graph)  # fmt: skip
        last = work / "first"
        hadpsgd("decode-gmm", *common, "--graph", graph, "--out", last, *self.jobs)
        if stage == "sat":
            trans: tuple[object, ...] = ()
            for number in ("second", "third"):
                new = work / f"trans_{number}"
                hadpsgd("adapt", *common, *lang, "--lattices", last, *trans, "--out", new)
                trans, last = ("--trans", new), work / number
                hadpsgd("decode-gmm", *common, "--graph", graph, *trans, "--out", last,
                        *self.jobs)  # fmt: skip
        tuned = work / "tuned.json"
        hadpsgd("tune", "--config", self.config, "--decode", last, "--data", self.test_set,
                "--out", tuned)  # fmt: skip
        best = min(json.loads(tuned.read_text())["tried"], key=lambda row: row["errors"])
        return Score(int(best["errors"]), int(best["words"]))


class Score(NamedTuple):
    """Word errors, of so many words."""

    errors: int
    words: int

    @property
    def wer(self) -> float:
        """In percent."""
        return 100 * self.errors / self.words


def data(folder: Path) -> tuple[object, ...]:
    """Arguments that name a data set whose folder has its features too."""
    return ("--data", folder, "--feats", folder)


def main() -> None:
    """Train, score, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder to keep (default: a temporary one)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-wer", action="store_true", help="times only")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        config = CONFIG.format(seed=args.seed)
        sets, grammar = KALDI / "data", ("--g", KALDI / "lang/G.fst")
        folder = args.out or Path(scratch)
        ladder = Ladder(folder, config, sets / "train", sets / "test", grammar, args.jobs)
        print("| stage | wall (s) | processor (s) | WER (%) | Kaldi's WER (%) |")
        print("|---|---|---|---|---|")
        total = [0.0, 0.0]
        for before, stage in zip((None, *STAGES), STAGES, strict=False):
            wall, used = ladder.train(stage, before)
            total = [total[0] + wall, total[1] + used]
            wer = "" if args.no_wer else f"{ladder.score(stage).wer:.2f}"
            print(f"| {stage} | {wall:.0f} | {used:.0f} | {wer} | {THEIRS[stage]} |", flush=True)
        print(f"| all | {total[0]:.0f} | {total[1]:.0f} | | |")


if __name__ == "__main__":
    main()
