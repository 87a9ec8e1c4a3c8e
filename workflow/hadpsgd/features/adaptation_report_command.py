"""`hadpsgd adaptation-report`: determinants of FMLLR transforms, scatter of i-vectors."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from hadpsgd.corpus.tables import read_table
from hadpsgd.errors import UserError
from hadpsgd.features import views
from hadpsgd.features.fmllr import read_transforms
from hadpsgd.files import atomic_folder


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--data", type=Path, required=True, help="Kaldi data directory: speakers")
    parser.add_argument("--trans", type=Path, help="FMLLR: folder of trans.*, an archive or scp")
    parser.add_argument("--ivectors", type=Path, help="archive, scp, or the folder of a set")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    if args.trans is None and args.ivectors is None:
        raise UserError("nothing to report", fix="Give --trans, --ivectors or both")
    speaker_of = read_table(args.data / "utt2spk")
    genders = args.data / "spk2gender"
    gender = read_table(genders) if genders.is_file() else {}
    summary: dict[str, object] = {}
    pictures = {}
    if args.trans is not None:
        values = views.log_determinants(read_transforms(args.trans))
        pictures["log_determinants"] = views.determinant_picture(values, gender)
        summary["log_determinants"] = {name: round(value, 4) for name, value in values.items()}
    if args.ivectors is not None:
        vectors = views.read_ivectors(args.ivectors)
        speakers = {name: speaker_of.get(name, name) for name in vectors}
        sexes = {name: gender[who] for name, who in speakers.items() if who in gender}
        pictures["ivectors"] = views.ivector_picture(vectors, speakers, gender)
        summary["ivectors"] = len(vectors)
        summary["variance_between_speakers"] = views.spread(vectors, speakers)
        summary["variance_between_genders"] = views.spread(vectors, sexes)
    with atomic_folder(args.out) as out:
        for name, figure in pictures.items():
            figure.savefig(out / f"{name}.png", dpi=140, facecolor="white")
        (out / "adaptation.json").write_text(json.dumps(summary, indent=2) + "\n", "utf-8")
    print(f"adaptation-report: {', '.join(pictures)} → {args.out}", file=sys.stderr)
    return 0
