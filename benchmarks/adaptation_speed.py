"""Speed of speaker adaptation on one core, as multiples of real time.

    cd KALDI_DIR; python benchmarks/adaptation_speed.py DATA MODEL TRANS EXTRACTOR

DATA is a Kaldi data directory with feats.scp (MFCC) and cmvn.scp, MODEL has final.mat and
splice_opts, TRANS has trans.*, EXTRACTOR has final.ie and final.dubm. Measured are FMLLR features
and i-vectors by speaker, by utterance and online, from stored MFCC to stored result.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from hadpsgd.config.ivector import Ivector
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.features.fmllr import apply, read_transforms
from hadpsgd.features.frontend import Frontend, Inputs
from hadpsgd.features.ivector import extractor, ubm
from hadpsgd.features.ivector.extract import extract


def main() -> None:
    """Measure; the stages print their speed themselves."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("data", "model", "trans", "extractor"):
        parser.add_argument(name, type=Path)
    args = parser.parse_args()
    data = DataDir.read(args.data, audio=False, text=False)
    with tempfile.TemporaryDirectory() as name:
        inputs = Inputs(data, args.data, Frontend.read(args.model))
        apply(inputs, read_transforms(args.trans), Path(name) / "fmllr", 1)
        background = ubm.read(args.extractor / "final.dubm")
        model = extractor.read(args.extractor / "final.ie")
        for per in ("speaker", "utterance", "online"):
            print(per, end=" ", flush=True)
            inputs = Inputs(data, args.data, Frontend.read(args.extractor))
            options = Ivector.model_validate({"per": per})
            extract(inputs, background, model, options, Path(name) / per, 1)


if __name__ == "__main__":
    main()
