"""Speed of features on one core, as multiples of real time.

    python benchmarks/features_speed.py DATA_DIR [--repeat 5]

DATA_DIR is a Kaldi data directory at 8 kHz (paths in wav.scp as seen from here). Measured are:
logmel read from audio and written as an archive; the same with deltas appended before writing
(120 numbers a frame); and reading the archive back as the model's input (normalised, deltas).
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

from commands import processor_seconds

from hadpsgd.config.load import check
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.features.deltas import add_deltas
from hadpsgd.features.extract import extract, pieces, worker
from hadpsgd.features.fusion import Fusion, Matrix
from hadpsgd.kaldi_io import Writer
from hadpsgd.parallel import map_in_order

CONFIG = check({"name": "benchmark", "corpus": {"kind": "an4"}}, "benchmark")


def with_deltas(data: DataDir, folder: Path) -> None:
    """Logmel, deltas appended, written."""
    with Writer(ark=folder / "deltas.ark", scp=folder / "deltas.scp") as writer:
        for piece in map_in_order(lambda: worker("logmel", CONFIG, data), pieces(data), 1):
            for utterance, _, _, features in piece:
                writer.write(utterance, add_deltas(features))


def read(folder: Path, data: DataDir) -> Iterator[Matrix]:
    """The model's input, utterance by utterance."""
    return (features for _, features in Fusion(CONFIG, folder, data))


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    data = DataDir.read(args.data, text=False)
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "logmel" / args.data.name
        summary = extract("logmel", CONFIG, data, out, 1)
        audio = summary.samples / CONFIG.features.sample_rate
        stages = {
            "logmel written": lambda: extract("logmel", CONFIG, data, out, 1),
            "logmel and deltas written": lambda: with_deltas(data, Path(name)),
            "mfcc written": lambda: extract("mfcc", CONFIG, data, Path(name) / "mfcc", 1),
            "read as model input": lambda: list(map(len, read(Path(name), data))),
        }
        rates = {what: processor_seconds(args.repeat, run) for what, run in stages.items()}
    print(f"{audio / 3600:.2f} h of audio")
    for what, seconds in rates.items():
        print(f"{what}: {audio / seconds:,.0f}x real time on one core")


if __name__ == "__main__":
    main()
