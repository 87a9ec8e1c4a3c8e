"""Speed of speaker adaptation on one core, as multiples of real time.

    cd KALDI_DIR; python benchmarks/adaptation_speed.py DATA MODEL TRANS EXTRACTOR

DATA is a Kaldi data directory with feats.scp (MFCC) and cmvn.scp, MODEL has final.mat and
splice_opts, TRANS has trans.*, EXTRACTOR has final.ie and final.dubm. Measured are FMLLR features
and i-vectors by speaker, by utterance and online, from stored MFCC to stored result. Counted is
the core's time, so that other work on the machine matters little.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from hadpsgd.config.ivector import Ivector
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.features.fmllr import apply, read_transforms
from hadpsgd.features.frontend import Frontend, Inputs
from hadpsgd.features.ivector import extractor, ubm
from hadpsgd.features.ivector.extract import extract
from hadpsgd.features.store import FRAMES_A_SECOND


def report(what: str, seconds: float, frames: int) -> None:
    """Print a speed."""
    print(f"{what}: {frames / FRAMES_A_SECOND / seconds:,.0f}x real time on one core")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("data", "model", "trans", "extractor"):
        parser.add_argument(name, type=Path)
    args = parser.parse_args()
    data = DataDir.read(args.data, audio=False, text=False)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inputs = Inputs(data, args.data, Frontend.read(args.model))
        start = time.process_time()
        apply(inputs, read_transforms(args.trans), folder / "fmllr", 1)
        seconds = time.process_time() - start
        lines = (folder / "fmllr/utt2num_frames").read_text().splitlines()
        frames = sum(int(line.split()[1]) for line in lines)
        report("fmllr", seconds, frames)
        background = ubm.read(args.extractor / "final.dubm")
        model = extractor.read(args.extractor / "final.ie")
        for per in ("speaker", "utterance", "online"):
            inputs = Inputs(data, args.data, Frontend.read(args.extractor))
            options = Ivector.model_validate({"per": per})
            start = time.process_time()
            extract(inputs, background, model, options, folder / per, 1)
            report(f"i-vectors, {per}", time.process_time() - start, frames)


if __name__ == "__main__":
    main()
