"""The ladder of GMMs on AN4's training set alone: choices of it are made here, never on test.

The speakers of train are dealt to two halves; each is decoded with models and language model of
the other (5,442 words in all). Prints the errors of both together, stage by stage.

    .venv/bin/python benchmarks/gmm_folds.py [--last tri] [--alignment 'tri: {variance_prior: 40}']
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import yaml
from commands import hadpsgd
from gmm_ladder import CONFIG, KALDI, STAGES, Ladder, Score

TABLES = ("feats.scp", "text", "utt2spk", "cmvn.scp", "spk2gender", "spk2utt")


def half(folder: Path, part: int) -> Path:
    """Every second speaker of train as a data set of its own, with its text."""
    train = KALDI / "data/train"
    speakers = [line.split()[0] for line in (train / "spk2utt").read_text().splitlines()]
    chosen = set(speakers[part::2])
    pairs = (line.split() for line in (train / "utt2spk").read_text().splitlines())
    chosen |= {utterance for utterance, speaker in pairs if speaker in chosen}
    folder.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        lines = (train / name).read_text().splitlines()
        kept = [line.replace(" mfcc/", f" {KALDI}/mfcc/") for line in lines
                if line.split()[0] in chosen]  # fmt: skip
        (folder / name).write_text("".join(f"{line}\n" for line in kept))
    lines = (folder / "text").read_text().splitlines()
    (folder / "lm.txt").write_text("".join(f"{line.partition(' ')[2]}\n" for line in lines))
    return folder


def fold(
    folder: Path, config: dict[str, object], halves: tuple[Path, Path], last: str, jobs: int
) -> dict[str, Score]:
    """Train on the first half, score on the second; errors by stage."""
    model = folder / "lm"
    text = yaml.safe_dump(config)
    ladder = Ladder(folder, text, *halves, ("--arpa", model / "4gram.arpa.gz"), jobs)
    hadpsgd("lm", "--config", ladder.config, "--text", halves[0] / "lm.txt",
            "--lang", KALDI / "lang", "--out", model)  # fmt: skip
    stages = STAGES[: STAGES.index(last) + 1]
    scores = {}
    for before, stage in zip((None, *stages), stages, strict=False):
        ladder.train(stage, before)
        scores[stage] = ladder.score(stage)
    return scores


def main() -> None:
    """Both folds, and the sums of their errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--alignment", default="", help="settings of that section (YAML)")
    parser.add_argument("--last", choices=STAGES, default="sat", help="stage to stop at (sat)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    config = yaml.safe_load(CONFIG.format(seed=args.seed))
    for key, value in (yaml.safe_load(args.alignment) or {}).items():
        old = config["alignment"].get(key)
        config["alignment"][key] = {**old, **value} if isinstance(value, dict) and old else value
    with tempfile.TemporaryDirectory() as scratch:
        halves = [half(Path(scratch) / f"half{part}", part) for part in (0, 1)]
        both = []
        for part in (0, 1):
            folder, pair = Path(scratch) / f"fold{part}", (halves[part], halves[1 - part])
            both.append(fold(folder, config, pair, args.last, args.jobs))
    for stage, first in both[0].items():
        second = both[1][stage]
        total = Score(first.errors + second.errors, first.words + second.words)
        print(f"{stage}: {total.errors} errors of {total.words} words, {total.wer:.2f} % "
              f"({first.wer:.2f} and {second.wer:.2f})")  # fmt: skip


if __name__ == "__main__":
    main()
